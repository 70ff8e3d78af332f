#include "cachesvc/server/request_subject.h"

#include <string_view>
#include <variant>

#include "cachesvc/server/change_text.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Returns the value of "name" in a profile's JSON, without decoding its escapes. A refused profile
// may not even be JSON, so it is not parsed.
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
  std::string operator()(const msg::SetRetention& request) const { return request.segment.hex(); }
  std::string operator()(const msg::SetBudget& request) const { return scope_text(request.scope); }
  std::string operator()(const msg::AddProfile& request) const { return name_in(request.json); }
  std::string operator()(const msg::RemoveProfile& request) const { return request.name; }
  std::string operator()(const msg::RemoveModel& request) const { return request.model.hex(); }
  std::string operator()(const msg::AddTenant& request) const { return request.name; }
  std::string operator()(const msg::ChangeTenant& request) const { return request.name; }
  std::string operator()(const msg::RotateToken& request) const { return request.name; }
  std::string operator()(const msg::RemoveTenant& request) const { return request.name; }
  std::string operator()(const msg::StartBackup& request) const { return request.name; }
  template <typename Other>
  std::string operator()(const Other&) const {
    return {};
  }
};

}  // namespace

std::string subject_of(const msg::RequestBody& request) { return std::visit(Subject{}, request); }

}  // namespace precis
