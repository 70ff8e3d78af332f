// The output of benchmarks: one figure and its ceiling, as one line of JSON. The program that shows
// the rows computes results from the rounds (rounds.py) and knows which results are promised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace precis::bench {

// Samples are taken in rounds. Each round measures the ceiling and the figure directly after each
// other, because the speed of a shared host changes by the minute.
struct Samples {
  std::vector<double> values, ceilings;
  void add(double value, double ceiling) {
    values.push_back(value);
    ceilings.push_back(ceiling);
  }
};

struct Row {
  std::string bench;  // for example "get_hot"
  std::map<std::string, std::variant<std::uint64_t, std::string>> params;
  std::string unit;  // "GB/s" (1e9 bytes): more is better; any other unit: less is better
  std::string ceiling_name;
  Samples samples;
  std::string why_not = "";  // why nothing was measured
};

// {"bench", "params", "unit", "ceiling_name"}, and either "values" and "ceilings" of each round or
// "why_not".
std::string to_json(const Row& row);
// Prints to standard output and flushes it.
void print(const Row& row);

double median(std::vector<double> values);
// The smallest of `values` that is not exceeded by a share `share` of them. Sorts `values`.
double quantile(std::vector<double>& values, double share);

}  // namespace precis::bench
