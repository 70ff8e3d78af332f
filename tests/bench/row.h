// What benchmarks say: one figure beside its ceiling, a line of JSON each. What comes of the rounds
// is worked out by who shows them (rounds.py), and what is promised of it is known there.
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

// {"bench", "params", "unit", "ceiling_name", "values" and "ceilings" of each round, or "why_not"}
std::string to_json(const Row& row);
// To standard output, at once.
void print(const Row& row);

double median(std::vector<double> values);
// The smallest of `values` that `share` of them do not exceed; sorts them.
double quantile(std::vector<double>& values, double share);

}  // namespace precis::bench
