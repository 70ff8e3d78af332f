// The differences between a running service's configuration and a new one that it reads.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/base/config.h"

namespace precis {

// One setting that differs, with its values as text. Tokens and salts never appear in the values.
struct SettingChange {
  std::string key;  // key in the file, or "tenant NAME" for a tenant
  std::string from, to;
  bool operator==(const SettingChange&) const = default;
};

struct ConfigChanges {
  std::vector<SettingChange> live;     // a running service applies these
  std::vector<SettingChange> restart;  // these need a restart
};

ConfigChanges changes_between(const Config& running, const Config& next);

// Describes a tenant, for example "with a token, weight 2": enough to see a change, and no secret.
// Null: "not there".
std::string tenant_text(const TenantConfig* tenant);

// Returns `running` with the live settings of `next`: the configuration that the service uses from
// then on.
Config with_live_settings(const Config& running, const Config& next);

}  // namespace precis
