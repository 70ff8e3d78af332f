#include "client/cli/find.h"

#include <algorithm>
#include <vector>

#include "client/cli/json.h"
#include "precis/printable.h"

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
  for (std::size_t i = 0; i < names.size() && i < kCandidatesShown; ++i)
    list += "\n  " + printable(names[i]);
  if (names.size() > kCandidatesShown) list += "\n  ...";
  return list;
}

// For each model: "  revision "2"  dtype "f32"", the values that differ from those of another model
// of the same name.
std::vector<std::string> differences_of(const std::vector<msg::ModelRow>& rows) {
  std::vector<Json> specs;
  for (const msg::ModelRow& row : rows) specs.push_back(to_json(row.model));
  std::vector<std::string> differences;
  for (const Json& spec : specs) {
    std::string& text = differences.emplace_back();
    for (const auto& [key, value] : spec.items()) {
      if (key == "token_bytes") continue;  // follows from the others
      const bool differs =
          std::ranges::any_of(specs, [&, &name = key, &own = value](const Json& x) {
            return x["name"] == spec["name"] && x[name] != own;
          });
      if (differs)
        text += "  " + key + " " + value.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  return differences;
}

}  // namespace

Result<SegmentId> find_segment(Client& client, const std::string& text) {
  PRECIS_TRY(check_hex("prefix id", text));
  if (text.size() >= kSegmentIdDigits) return parse_segment_id(text);
  PRECIS_ASSIGN(const msg::SegmentInfo found, client.find_segment(text));
  return found.id;
}

Result<msg::ModelRow> find_model(Client& client, const std::string& text) {
  PRECIS_ASSIGN(const auto rows, client.models());
  std::vector<msg::ModelRow> found;
  for (const msg::ModelRow& row : rows) {
    if (row.model.name == text || row.fingerprint.hex().starts_with(text)) found.push_back(row);
  }
  if (found.size() == 1) return found.front();
  const std::vector<std::string> differences = differences_of(found.empty() ? rows : found);
  std::vector<std::string> names;
  for (const msg::ModelRow& row : found.empty() ? rows : found) {
    names.push_back(row.fingerprint.hex() + "  " + row.model.name + differences[names.size()]);
  }
  if (!found.empty()) {
    return Status::invalid("'" + text + "' means " + std::to_string(found.size()) +
                           " models: give the fingerprint of one, or enough of its beginning. They "
                           "differ in these values (`precisctl model ls` lists all):" +
                           list_of(names));
  }
  const std::string none =
      "no model is called '" + text + "' or has a fingerprint that begins with it: ";
  if (rows.empty()) {
    return Status::not_found(none + "there are none, a client's register_model() adds one");
  }
  return Status::not_found(none + "give the name or the fingerprint of one of " +
                           std::to_string(rows.size()) +
                           " (`precisctl model ls` lists all):" + list_of(names));
}

Result<std::optional<Digest>> model_scope(Client& client, const std::string& text) {
  if (text.empty()) return std::optional<Digest>();
  PRECIS_ASSIGN(const msg::ModelRow row, find_model(client, text));
  return std::optional(row.fingerprint);
}

Result<msg::SessionRow> find_session(Client& client, const std::string& name) {
  auto row = client.session(name);
  if (row.status().code() != StatusCode::kNotFound) return row;
  return Status::not_found("no session is called '" + name +
                           "': `precisctl session ls` lists them");
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

}  // namespace precis::cli
