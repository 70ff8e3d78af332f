#include "cachesvc/server/trace_context.h"

#include <charconv>
#include <cstddef>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kNoVersion = 0xff, kSampled = 1;

// Takes a number of so many digits from the beginning of `text`, which has at least so many.
std::optional<std::uint64_t> take_hex(std::string_view& text, std::size_t digits) {
  const std::string_view part = text.substr(0, digits);
  if (part.find_first_not_of("0123456789abcdef") != part.npos) return std::nullopt;
  text.remove_prefix(digits);
  std::uint64_t value = 0;
  std::from_chars(part.data(), part.data() + part.size(), value, 16);
  return value;
}

bool take_dash(std::string_view& text) {
  if (text.front() != '-') return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  if (text.size() != limits::kTraceparentBytesMax) return std::nullopt;
  TraceContext context;
  const auto version = take_hex(text, 2);
  if (!version || *version == kNoVersion || !take_dash(text)) return std::nullopt;
  const auto high = take_hex(text, 16), low = high ? take_hex(text, 16) : std::nullopt;
  if (!low || (*high | *low) == 0 || !take_dash(text)) return std::nullopt;
  const auto span = take_hex(text, 16);
  if (!span || *span == 0 || !take_dash(text)) return std::nullopt;
  const auto flags = take_hex(text, 2);
  if (!flags) return std::nullopt;
  return TraceContext{*high, *low, *span, (*flags & kSampled) != 0};
}

std::string hex_id(std::uint64_t id) {
  constexpr std::size_t kDigits = 16;
  std::string text(kDigits, '0');
  char digits[kDigits];
  const char* const end = std::to_chars(digits, digits + kDigits, id, 16).ptr;
  const auto count = static_cast<std::size_t>(end - digits);
  return text.replace(kDigits - count, count, digits, count);
}

}  // namespace precis
