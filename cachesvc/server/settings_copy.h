// The settings of a node (settings_catalog.h), and its applications of budgets, as the rows that
// all nodes of a cluster share.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/cluster/agreed_rows.h"
#include "cachesvc/server/agreed_applications.h"

namespace precis {

class SettingsCopy final : public cluster::AgreedCopy {
 public:
  using Taken = SettingsCatalog::Taken;
  // `cluster_id`: for a cluster that has none yet. `taken` is called for changes, on any thread.
  // `catalog` and `applications` outlive it.
  SettingsCopy(Catalog& catalog, AgreedApplications& applications, std::string cluster_id,
               std::function<void(const Taken&)> taken)
      : catalog_(catalog),
        applications_(applications),
        cluster_id_(std::move(cluster_id)),
        taken_(std::move(taken)) {}

  Result<std::vector<cluster::AgreedRow>> rows() override;
  Status take(std::vector<cluster::AgreedRow> rows, cluster::LeftOut& left_out) override;
  std::vector<cluster::AgreedRow> own_changes() override;
  std::string identity() const override;

  // From now on, all nodes take the changes of the catalog's settings, once they go through `rows`.
  // Call it while no other thread uses the catalog.
  void begin();
  void agree_through(cluster::AgreedRows& rows) { rows_ = &rows; }

 private:
  Catalog& catalog_;
  AgreedApplications& applications_;
  const std::string cluster_id_;
  const std::function<void(const Taken&)> taken_;
  std::atomic<cluster::AgreedRows*> rows_ = nullptr;
};

}  // namespace precis
