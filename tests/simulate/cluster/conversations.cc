#include "tests/simulate/cluster/conversations.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace precis::simulate {
namespace {

constexpr std::uint32_t kPromptBlocksMax = 1 << 20;

}  // namespace

Result<Conversations> read_conversations(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status::not_found(fmt::format("{} cannot be read", path));
  Conversations read;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream fields(line);
    std::size_t earlier = 0, common = 0, blocks = 0;
    fields >> earlier >> common >> blocks;
    const bool known = earlier < read.prompts.size() && common <= read.prompts[earlier].size();
    if (!fields || blocks == 0 || blocks > kPromptBlocksMax || common > blocks ||
        (common > 0 && !known)) {
      return Status::invalid(
          fmt::format("{} line {}: must be an earlier request, the number of blocks in common with "
                      "it, and the number of blocks",
                      path, number));
    }
    Prompt prompt;
    if (common > 0) {
      const Prompt& before = read.prompts[earlier];
      prompt.assign(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(common));
    }
    while (prompt.size() < blocks) prompt.push_back(read.blocks++);
    read.prompts.push_back(std::move(prompt));
  }
  if (read.prompts.empty()) return Status::invalid(fmt::format("{} has no request", path));
  return read;
}

}  // namespace precis::simulate
