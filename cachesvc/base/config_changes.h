// The changes that a configuration brings to a running service when it is read again.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/base/config.h"

namespace precis {

// One setting that differs, with its values as text. Tokens and salts are never among them.
struct SettingChange {
  std::string key;  // of the file; a tenant's is "tenant NAME"
  std::string from, to;
  bool operator==(const SettingChange&) const = default;
};

struct ConfigChanges {
  std::vector<SettingChange> live;     // that a running service takes up
  std::vector<SettingChange> restart;  // that it can't: they wait for its next start
};

ConfigChanges changes_between(const Config& running, const Config& next);

// `running` with what is live of `next`: how the service runs from then on.
Config with_live_settings(const Config& running, const Config& next);

}  // namespace precis
