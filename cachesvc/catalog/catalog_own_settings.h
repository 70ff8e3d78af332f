// Settings that this node changes on its own accord: models that others removed while it stored
// segments of them come back, and budgets of ended sessions end. Private to this folder.
#pragma once

#include <set>
#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

class CatalogOwnSettings : public virtual CatalogState {
 public:
  std::vector<SettingRow> own_changes() override;

 protected:
  // Callers hold changes_. Whether the row is the removal of a model of which this node has
  // segments, which no other node has seen, or of what belongs to it. Such a model comes back.
  bool must_keep(const SettingRow& row);

  // Models that were removed while segments of them were stored. Guarded by changes_.
  std::set<ModelKey> kept_models_;

 private:
  std::vector<SettingRow> rows_of_kept(const ModelKey& key);
  bool has_segments(const ModelKey& key) const;
};

}  // namespace precis
