// Which role may send which request.
#include "precis/role.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "precis/messages.h"

namespace precis {

TEST_CASE("roles have names, and other names are refused", "[unit][schema]") {
  for (const Role role : {Role::kReader, Role::kWriter, Role::kAdmin}) {
    CHECK(parse_role(role_name(role)).value() == role);
  }
  for (const char* name : {"", "Reader", "boss"}) {
    CHECK_THAT(parse_role(name).status().message(),
               Catch::Contains("must be reader, writer or admin"));
  }
  CHECK(Role::kReader < Role::kWriter);
  CHECK(Role::kWriter < Role::kAdmin);
}

TEST_CASE("a reader changes nothing, and only an admin manages tenants", "[unit][schema]") {
  std::set<std::string> of_readers, of_admins;
  for (const RequestKind& request : msg::kRequestKinds) {
    if (request.role == Role::kReader) of_readers.emplace(request.type);
    if (request.role == Role::kAdmin) of_admins.emplace(request.type);
    if (request.administrative) CHECK(request.role != Role::kReader);
  }
  // Readers may send RegisterModel only for a model that is registered (model_requests.cc).
  CHECK(of_readers ==
        std::set<std::string>{
            "Cancel",        "CheckPrefix",     "CompareBudgets",      "FindPrefix",  "Get",
            "GetStats",      "GetStatus",       "ListBudgetRevisions", "ListEvents",  "ListModels",
            "ListPrefixes",  "ListProfiles",    "ListSessions",        "Lookup",      "Ping",
            "RegisterModel", "ShowApplication", "ShowBudget",          "ShowCluster", "ShowPrefix",
            "ShowProfile",   "ShowSession"});
  CHECK(of_admins == std::set<std::string>{"AddTenant", "CancelBackup", "ChangeTenant", "DrainNode",
                                           "ListBackups", "ListTenants", "RemoveTenant",
                                           "RotateToken", "ShowBackup", "ShowTenant",
                                           "StartBackup"});
}

}  // namespace precis
