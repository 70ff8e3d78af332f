// Settings as rows. Private to this folder.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cachesvc/catalog/catalog_own_settings.h"

namespace precis {

class CatalogSettings : public CatalogOwnSettings {
 public:
  Result<std::vector<SettingRow>> settings() override;
  Result<Taken> take_settings(std::vector<SettingRow> rows) override;
  void agree_by(Agree agree) override { agree_ = std::move(agree); }
  std::string cluster_id() const override;

 protected:
  Status change_settings(const Plan& plan) override;

 private:
  struct Taking;
  // Callers hold changes_ for the functions below.
  Result<Taken> take(std::vector<SettingRow> rows);
  Status take_model(const SettingRow& row, Taking& taking);
  Status take_projection(const SettingRow& row, Taking& taking);
  Status take_profile(const SettingRow& row, Taking& taking);
  Status take_budget(const SettingRow& row, Taking& taking);
  Status take_revision(const SettingRow& row, Taking& taking);
  Status take_tenant(const SettingRow& row, Taking& taking);
  Status take_cluster_id(const SettingRow& row, Taking& taking);
  void erase_model(const ModelKey& key, Taking& taking);
  void erase_projection(const ModelKey& key, std::uint32_t layer, Taking& taking);
  const ModelSpec* taken_model(const ModelKey& key, const Taking& taking) const;
};

}  // namespace precis
