// What benchmarks say: one figure beside its ceiling, a line of JSON each. Whoever shows them
// (report.py) knows what is promised of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace precis::bench {

// Taken in rounds: in each the ceiling and the figure right after each other, for a machine whose
// host is shared gives another rate every minute.
struct Samples {
  std::vector<double> values, ceilings;
  void add(double value, double ceiling) {
    values.push_back(value);
    ceilings.push_back(ceiling);
  }
};

struct Row {
  std::string bench;  // "get_hot"
  std::map<std::string, std::variant<std::uint64_t, std::string>> params;
  std::string unit;  // of "GB/s" (1e9 bytes) more is better, of every other less
  std::string ceiling_name;
  Samples samples;
  std::string why_not = "";  // why nothing was measured
};

// {"bench", "params", "value", "unit", "ceiling", "ceiling_name", "share", "runs", "min", "max",
// "ceiling_min", "ceiling_max", "why_not"}: value and ceiling are the medians of the rounds, share
// the median of each round's (value over ceiling of rates, ceiling over value of all else).
std::string to_json(const Row& row);
// To standard output, at once.
void print(const Row& row);

double median(std::vector<double> values);
// The smallest of `values` that `share` of them do not exceed; sorts them.
double quantile(std::vector<double>& values, double share);

}  // namespace precis::bench
