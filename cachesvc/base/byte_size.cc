#include "cachesvc/base/byte_size.h"

#include <charconv>
#include <limits>
#include <utility>

namespace precis {
namespace {

// Smallest first.
constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
    {"B", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", 1ull << 40}};

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc()) {
    std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
    if (unit.empty()) return number;
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number <= std::numeric_limits<std::uint64_t>::max() / factor) {
        return number * factor;
      }
    }
  }
  return Status::invalid("is '" + std::string(text) + "', must be " + kSizeForm +
                         ", or a number of bytes");
}

std::string size_text(std::uint64_t bytes) {
  std::string text;
  for (const auto& [unit, factor] : kUnits) {
    const bool exact = bytes >= factor && bytes % factor == 0;
    if (text.empty() || exact) text = std::to_string(bytes / factor) + std::string(unit);
  }
  return text;
}

}  // namespace precis
