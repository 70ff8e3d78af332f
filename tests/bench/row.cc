#include "tests/bench/row.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace precis::bench {

void print_table(const std::vector<Row>& rows) {
  fmt::print("\n{:<12} {:<9} {:>9} {:>8} {:>15} {:>8}  {:<24} {:>6}\n", "bench", "transport", "MiB",
             "GB/s", "min-max", "ceiling", "ceiling is", "share");
  for (const Row& row : rows) {
    fmt::print("{:<12} {:<9} {:>9.1f} {:>8.2f} {:>15} {:>8.2f}  {:<24} {:>5.0f}%\n", row.bench,
               row.transport, static_cast<double>(row.bytes) / (1 << 20), row.value.median,
               fmt::format("{:.2f}-{:.2f}", row.value.min, row.value.max), row.ceiling.median,
               row.ceiling_name, 100 * row.share());
  }
}

Status write_json(const std::vector<Row>& rows, const std::string& path) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    list.push_back({{"bench", row.bench},
                    {"params", {{"transport", row.transport}, {"bytes", row.bytes}}},
                    {"value", row.value.median},
                    {"unit", "GB/s"},
                    {"ceiling", row.ceiling.median},
                    {"ceiling_name", row.ceiling_name},
                    {"share", row.share()},
                    {"mark", row.mark ? nlohmann::json(*row.mark) : nlohmann::json()},
                    {"runs", row.value.runs},
                    {"min", row.value.min},
                    {"max", row.value.max}});
  }
  std::ofstream file(path);
  file << list.dump(2) << "\n";
  file.close();
  return file ? Status() : Status::unavailable("cannot write " + path);
}

}  // namespace precis::bench
