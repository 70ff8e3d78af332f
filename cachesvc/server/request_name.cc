#include "cachesvc/server/request_name.h"

#include <array>
#include <type_traits>
#include <variant>

#include "cachesvc/server/change_text.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kRequests = std::variant_size_v<msg::RequestBody>;

template <typename T, std::size_t kAt = 0>
constexpr std::size_t index_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<kAt, msg::RequestBody>, T>) {
    return kAt;
  } else {
    return index_of<T, kAt + 1>();
  }
}

constexpr std::array<RequestName, kRequests> make_names() {
  constexpr bool kAdministrative = true;
  std::array<RequestName, kRequests> names{};
  names[index_of<msg::RegisterModel>()] = {"RegisterModel"};
  names[index_of<msg::ListModels>()] = {"ListModels"};
  names[index_of<msg::BeginPut>()] = {"BeginPut"};
  names[index_of<msg::PushLayer>()] = {"PushLayer"};
  names[index_of<msg::CommitPut>()] = {"CommitPut"};
  names[index_of<msg::AbortPut>()] = {"AbortPut"};
  names[index_of<msg::Lookup>()] = {"Lookup"};
  names[index_of<msg::Get>()] = {"Get"};
  names[index_of<msg::Cancel>()] = {"Cancel"};
  names[index_of<msg::OpenSession>()] = {"OpenSession"};
  names[index_of<msg::AdvanceSession>()] = {"AdvanceSession"};
  names[index_of<msg::PinSession>()] = {"PinSession", kAdministrative};
  names[index_of<msg::ForkSession>()] = {"ForkSession"};
  names[index_of<msg::ShowSession>()] = {"ShowSession"};
  names[index_of<msg::ListSessions>()] = {"ListSessions"};
  names[index_of<msg::RemoveSession>()] = {"RemoveSession", kAdministrative};
  names[index_of<msg::ListPrefixes>()] = {"ListPrefixes"};
  names[index_of<msg::ShowPrefix>()] = {"ShowPrefix"};
  names[index_of<msg::RemovePrefix>()] = {"RemovePrefix", kAdministrative};
  names[index_of<msg::ShowBudget>()] = {"ShowBudget"};
  names[index_of<msg::SetBudget>()] = {"SetBudget", kAdministrative};
  names[index_of<msg::GetStats>()] = {"GetStats"};
  names[index_of<msg::GetStatus>()] = {"GetStatus"};
  names[index_of<msg::PushProjection>()] = {"PushProjection"};
  names[index_of<msg::AddProfile>()] = {"AddProfile", kAdministrative};
  names[index_of<msg::ListProfiles>()] = {"ListProfiles"};
  names[index_of<msg::ShowProfile>()] = {"ShowProfile"};
  names[index_of<msg::RemoveProfile>()] = {"RemoveProfile", kAdministrative};
  names[index_of<msg::CheckPrefix>()] = {"CheckPrefix"};
  names[index_of<msg::TrimPrefix>()] = {"TrimPrefix", kAdministrative};
  names[index_of<msg::Ping>()] = {"Ping"};
  names[index_of<msg::FindPrefix>()] = {"FindPrefix"};
  return names;
}

constexpr std::array<RequestName, kRequests> kNames = make_names();

constexpr bool all_named() {
  for (const RequestName& each : kNames) {
    if (each.name.empty()) return false;
  }
  return true;
}
static_assert(all_named());

// Returns the raw text of the key "name" in a profile's JSON, with its escapes. The text may not be
// valid JSON: the name is all that is known of a refused profile.
std::string name_in(std::string_view json) {
  constexpr std::string_view kKey = "\"name\"", kBlank = " \t\r\n:";
  const std::size_t key = json.find(kKey);
  if (key == std::string_view::npos) return {};
  const std::size_t quote = json.find_first_not_of(kBlank, key + kKey.size());
  if (quote == std::string_view::npos || json[quote] != '"') return {};
  const std::string_view rest = json.substr(quote + 1, limits::kNameBytesMax);
  return std::string(rest.substr(0, rest.find('"')));
}

struct Subject {
  std::string operator()(const msg::RegisterModel& request) const { return request.model.name; }
  std::string operator()(const msg::OpenSession& request) const { return request.name; }
  std::string operator()(const msg::AdvanceSession& request) const { return request.name; }
  std::string operator()(const msg::PinSession& request) const { return request.name; }
  std::string operator()(const msg::ForkSession& request) const { return request.new_name; }
  std::string operator()(const msg::RemoveSession& request) const { return request.name; }
  std::string operator()(const msg::RemovePrefix& request) const { return request.segment.hex(); }
  std::string operator()(const msg::TrimPrefix& request) const { return request.segment.hex(); }
  std::string operator()(const msg::SetBudget& request) const { return scope_text(request.scope); }
  std::string operator()(const msg::AddProfile& request) const { return name_in(request.json); }
  std::string operator()(const msg::RemoveProfile& request) const { return request.name; }
  template <typename Other>
  std::string operator()(const Other&) const {
    return {};
  }
};

}  // namespace

std::string subject_of(const msg::RequestBody& request) { return std::visit(Subject{}, request); }

RequestName request_name(std::size_t index) {
  return index < kNames.size() ? kNames[index] : RequestName{"unknown"};
}

}  // namespace precis
