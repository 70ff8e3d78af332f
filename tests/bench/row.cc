#include "tests/bench/row.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace precis::bench {

double median(std::vector<double> values) { return quantile(values, 0.5); }

double quantile(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

std::string to_json(const Row& row) {
  nlohmann::json line = {{"bench", row.bench},
                         {"params", nlohmann::json::object()},
                         {"unit", row.unit},
                         {"ceiling_name", row.ceiling_name}};
  for (const auto& [name, value] : row.params) {
    std::visit([&, &key = name](const auto& v) { line["params"][key] = v; }, value);
  }
  if (row.samples.values.empty()) {
    line["why_not"] = row.why_not;
  } else {
    line["values"] = row.samples.values;
    line["ceilings"] = row.samples.ceilings;
  }
  return line.dump();
}

void print(const Row& row) {
  std::puts(to_json(row).c_str());
  std::fflush(stdout);
}

}  // namespace precis::bench
