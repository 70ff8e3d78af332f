#include "client/cli/find.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "precis/limits.h"

namespace precis::cli {
namespace {

constexpr std::size_t kSegmentIdDigits = 32;
constexpr std::size_t kCandidatesShown = 5;

Status check_hex(const char* what, const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos) return {};
  return Status::invalid(std::string(what) + " '" + text + "' is not lower-case hexadecimal");
}

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kCandidatesShown; ++i) list += "\n  " + names[i];
  if (names.size() > kCandidatesShown) list += "\n  ...";
  return list;
}

}  // namespace

Result<SegmentId> find_segment(Client& client, const std::string& text) {
  PRECIS_TRY(check_hex("prefix id", text));
  if (text.size() >= kSegmentIdDigits) return parse_segment_id(text);
  PRECIS_ASSIGN(const auto rows, client.segments({}, limits::kListRowsMax));
  std::vector<std::string> names;
  SegmentId found;
  for (const msg::SegmentInfo& row : rows) {
    if (!row.id.hex().starts_with(text)) continue;
    found = row.id;
    names.push_back(row.id.hex());
  }
  if (names.empty()) {
    return Status::not_found("no prefix id begins with '" + text +
                             "': `precisctl prefix ls` lists them");
  }
  if (names.size() > 1) {
    return Status::invalid(std::to_string(names.size()) + " prefix ids begin with '" + text +
                           "', give more digits of one:" + list_of(names));
  }
  return found;
}

Result<msg::ModelRow> find_model(Client& client, const std::string& text) {
  PRECIS_ASSIGN(const auto rows, client.models());
  std::vector<msg::ModelRow> found;
  for (const msg::ModelRow& row : rows) {
    if (row.model.name == text || row.fingerprint.hex().starts_with(text)) found.push_back(row);
  }
  if (found.empty()) {
    return Status::not_found("no model is called '" + text +
                             "' or has a fingerprint that begins so: `precisctl model ls` lists "
                             "them");
  }
  if (found.size() == 1) return found.front();
  std::vector<std::string> names;
  for (const msg::ModelRow& row : found) {
    names.push_back(row.fingerprint.hex() + "  " + row.model.name + "  " + row.model.revision);
  }
  return Status::invalid("'" + text + "' means " + std::to_string(found.size()) +
                         " models, give the fingerprint of one:" + list_of(names));
}

Result<Digest> find_profile_model(Client& client, const std::string& model,
                                  const std::string& name) {
  if (!model.empty()) {
    PRECIS_ASSIGN(const msg::ModelRow row, find_model(client, model));
    return row.fingerprint;
  }
  PRECIS_ASSIGN(const auto rows, client.profiles());
  std::vector<std::string> models;
  Digest found;
  for (const msg::ProfileRow& row : rows) {
    if (row.name != name) continue;
    found = row.model;
    models.push_back(row.model.hex());
  }
  if (models.size() == 1) return found;
  if (models.empty()) {
    return Status::not_found("no profile is called '" + name +
                             "': `precisctl profile ls` lists them");
  }
  return Status::invalid(std::to_string(models.size()) + " models have a profile '" + name +
                         "', give --model:" + list_of(models));
}

// The decimal that is all of `text`.
std::optional<double> parse_decimal(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// "0.95", or "0.95 up to 0.5".
Result<Budget> parse_quality(const std::string& text) {
  constexpr std::string_view kUpTo = " up to ";
  const std::size_t at = text.find(kUpTo);
  const auto share = parse_decimal(std::string_view(text).substr(0, at));
  const auto cap =
      at == text.npos ? 1.0 : parse_decimal(std::string_view(text).substr(at + kUpTo.size()));
  if (share && cap) return Budget::quality(*share, *cap);
  return Status::invalid("keep 'quality " + text +
                         "': give a share of the score mass such as 'quality 0.95', or with a cap "
                         "'quality 0.95 up to 0.5'");
}

Result<Budget> parse_keep(const std::string& text) {
  if (text.starts_with("quality ")) return parse_quality(text.substr(8));
  const Status wrong = Status::invalid(
      "keep '" + text +
      "' is not understood: give a ratio in (0, 1] such as 0.3, entries per head such as "
      "'128 entries', bytes of a segment such as '64 MiB', or 'quality 0.95 up to 0.5'");
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0)) return wrong;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  if (unit.empty()) {
    auto ratio = Budget::ratio(number);
    return ratio.ok() ? ratio : wrong;
  }
  static const std::pair<const char*, double> kUnits[] = {
      {"entries", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  for (const auto& [name, scale] : kUnits) {
    if (unit != name) continue;
    const double value = std::round(number * scale);
    if (scale == 1 && value != number) return wrong;  // half an entry, half a byte
    if (value < 1 || value >= 0x1p63) return wrong;
    const auto whole = static_cast<std::uint64_t>(value);
    return unit == "entries" ? Budget::entries(whole) : Budget::bytes(whole);
  }
  return wrong;
}

}  // namespace precis::cli
