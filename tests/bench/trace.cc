#include "tests/bench/trace.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace precis::bench {

Result<std::vector<TraceRequest>> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::not_found("trace " + path + " cannot be read");
  std::vector<TraceRequest> requests;
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t number = requests.size() + 1;
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto ids = row.is_object() ? row.find("hash_ids") : row.end();
    if (!row.is_object() || ids == row.end() || !ids->is_array()) {
      return Status::invalid(
          fmt::format("trace {} line {}: no JSON object with a list 'hash_ids'", path, number));
    }
    TraceRequest request;
    if (const auto at = row.find("timestamp"); at != row.end() && at->is_number()) {
      request.seconds = at->get<double>() / 1000;
    }
    for (const auto& id : *ids) {
      if (!id.is_number_unsigned()) {
        return Status::invalid(
            fmt::format("trace {} line {}: a block's id is no number", path, number));
      }
      request.blocks.push_back(id.get<std::uint64_t>());
    }
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return Status::invalid("trace " + path + " is empty");
  return requests;
}

}  // namespace precis::bench
