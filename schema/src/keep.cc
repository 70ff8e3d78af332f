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

// "0.05".
Result<Budget> parse_loss(const std::string& text, const std::string& field) {
  if (const auto most = parse_decimal(text)) {
    auto loss = Budget::loss(*most);
    return loss.ok() ? loss : Result<Budget>(loss.status().with_context(field));
  }
  return Status::invalid(field + " 'loss " + text +
                         "': give a number in (0, 100] such as 'loss 0.05'");
}

}  // namespace

Result<Budget> parse_keep(const std::string& text, const std::string& field) {
  if (text.starts_with("loss ")) return parse_loss(text.substr(5), field);
  if (text.starts_with("quality ")) {
    return Status::invalid(field + " '" + text +
                           "': a share of the score mass does not bound what answers lose; give a "
                           "loss such as 'loss 0.05', or a ratio");
  }
  const Status wrong = Status::invalid(
      field + " '" + text +
      "' is not understood: give a ratio in (0, 1] such as 0.3 or '30%', entries per "
      "head such as '128 entries', bytes of a segment such as '64 MiB', a share of the bytes of K "
      "and V such as '10% bytes', or 'loss 0.05'");
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
    case Budget::Kind::kScoreMass:
    case Budget::Kind::kByteShare: fits = is_share(keep.without_score_mass().value); break;
    case Budget::Kind::kLoss: fits = keep.value > 0 && keep.value <= 100'000'000; break;
    case Budget::Kind::kEntries:
    case Budget::Kind::kBytes: fits = keep.value > 0; break;
  }
  return fits ? Status()
              : Status::invalid(
                    field + " is " + keep.to_string() +
                    ", must be a ratio or a share of bytes in (0, 1], a loss in (0, 100], "
                    "or at least one entry or byte");
}

Status check_reader_keep(const Budget& keep, const std::string& field) {
  if (keep.kind != Budget::Kind::kLoss) return check_keep(keep, field);
  return Status::invalid(field + " is " + keep.to_string() +
                         ", and a loss is for puts: give a ratio, entries, bytes or a share of "
                         "bytes");
}

}  // namespace precis
