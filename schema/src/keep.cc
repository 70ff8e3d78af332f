#include "precis/keep.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace precis {
namespace {

// The value of `text`; none unless the whole text is a decimal.
std::optional<double> parse_decimal(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// "0.95", or "0.95 up to 0.5".
Result<Budget> parse_quality(const std::string& text, const std::string& field) {
  constexpr std::string_view kUpTo = " up to ";
  const std::size_t at = text.find(kUpTo);
  const auto share = parse_decimal(std::string_view(text).substr(0, at));
  const auto cap =
      at == text.npos ? 1.0 : parse_decimal(std::string_view(text).substr(at + kUpTo.size()));
  if (share && cap) return Budget::quality(*share, *cap);
  return Status::invalid(field + " 'quality " + text +
                         "': give a share of the score mass such as 'quality 0.95', or with a cap "
                         "'quality 0.95 up to 0.5'");
}

}  // namespace

Result<Budget> parse_keep(const std::string& text, const std::string& field) {
  if (text.starts_with("quality ")) return parse_quality(text.substr(8), field);
  const Status wrong = Status::invalid(
      field + " '" + text +
      "' is not understood: give a ratio in (0, 1] such as 0.3 or '30%', entries per "
      "head such as '128 entries', bytes of a segment such as '64 MiB', a share of the bytes of K "
      "and V such as '10% bytes', or 'quality 0.95 up to 0.5'");
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0)) return wrong;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  if (unit.empty() || unit == "%") {
    auto ratio = Budget::ratio(unit.empty() ? number : number / 100);
    return ratio.ok() ? ratio : wrong;
  }
  if (unit == "% bytes") {
    auto share = Budget::byte_share(number / 100);
    return share.ok() ? share : wrong;
  }
  static const std::pair<const char*, double> kUnits[] = {
      {"entries", 1},  {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20},
      {"GiB", 0x1p30}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9}};
  for (const auto& [name, scale] : kUnits) {
    if (unit != name) continue;
    const double value = std::round(number * scale);
    if (scale == 1 && value != number) return wrong;  // no fractions of an entry or a byte
    if (value < 1 || value >= 0x1p63) return wrong;
    const auto whole = static_cast<std::uint64_t>(value);
    return unit == "entries" ? Budget::entries(whole) : Budget::bytes(whole);
  }
  return wrong;
}

Status check_keep(const Budget& keep, const std::string& field) {
  const auto is_share = [](std::uint64_t ppm) { return ppm > 0 && ppm <= 1'000'000; };
  bool fits = false;
  switch (keep.kind) {
    case Budget::Kind::kAll: fits = true; break;
    case Budget::Kind::kRatio:
    case Budget::Kind::kByteShare: fits = is_share(keep.value); break;
    case Budget::Kind::kQuality:
      fits = is_share(keep.quality_share_ppm()) && is_share(keep.quality_cap_ppm());
      break;
    case Budget::Kind::kEntries:
    case Budget::Kind::kBytes: fits = keep.value > 0; break;
  }
  return fits ? Status()
              : Status::invalid(field + " is " + keep.to_string() +
                                ", must be a ratio, a quality or a share of bytes in (0, 1], or at "
                                "least one entry or byte");
}

}  // namespace precis
