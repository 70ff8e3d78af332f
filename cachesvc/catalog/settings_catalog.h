// The part of the catalog that concerns settings: models, profiles, budgets with their revisions,
// and stored tenants. In a cluster all nodes have the same settings, which agree_by() arranges.
// Callers include catalog.h, which says what holds for all methods.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/store/row_store.h"
#include "precis/profile.h"
#include "precis/types.h"

namespace precis {

// The row of a setting, as it is stored.
struct SettingRow {
  Table table;
  std::string key;
  std::optional<std::vector<std::byte>> value;  // none: there is no such row
  // The profile of its row, if that was parsed already, which takes long for a large one.
  std::shared_ptr<const Profile> profile = nullptr;
};
// The most settings in one change in a cluster.
inline constexpr std::size_t kSettingsPerChange = 100;

class SettingsCatalog {
 public:
  virtual ~SettingsCatalog() = default;

  // [blocking] Returns all settings.
  virtual Result<std::vector<SettingRow>> settings() = 0;
  // [blocking] Replaces these settings. It leaves out rows that it does not understand, and the
  // removal of models of which segments are stored, with what belongs to them.
  struct Taken {
    bool tenants = false;                                       // whether some changed
    std::vector<std::pair<std::string, Digest>> models_erased;  // tenant, fingerprint
    struct LeftOut {
      Table table;
      std::string key;
      Status why;
    };
    std::vector<LeftOut> left_out;  // that it does not understand
  };
  virtual Result<Taken> take_settings(std::vector<SettingRow> rows) = 0;

  // From now on, `agree` makes the changes of settings that callers of this catalog ask for. It
  // calls `plan`, maybe several times, makes all nodes take the rows that it returned last, and
  // calls take_settings() with them. Without `agree`, only this catalog takes them. Call it while
  // no other thread uses the catalog.
  using Plan = std::function<Result<std::vector<SettingRow>>()>;
  using Agree = std::function<Status(const Plan& plan)>;
  virtual void agree_by(Agree agree) = 0;
  // Some of the changes of settings that this node makes without a request. It restores models that
  // were removed while it stored segments of them, and removes the budgets of ended sessions.
  virtual std::vector<SettingRow> own_changes() = 0;
  // [blocking] In a cluster: removes the budget of an ended session of this name, so that a new
  // session of the name does not have it.
  virtual Status end_former_budget(std::string_view tenant, const std::string& session) = 0;
  virtual bool has_former_budget(std::string_view tenant, const std::string& session) const = 0;
  // The random id of the cluster, which is a setting too; empty: not agreed yet.
  // cluster_id_row() makes its row.
  virtual std::string cluster_id() const = 0;
  static SettingRow cluster_id_row(const std::string& id);
};

}  // namespace precis
