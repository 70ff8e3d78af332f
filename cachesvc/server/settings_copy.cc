#include "cachesvc/server/settings_copy.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "cachesvc/server/tenants_in_force.h"

namespace precis {
namespace {

using cluster::AgreedRow;

// A key is the name of its table and the catalog's key.
constexpr std::pair<Table, std::string_view> kTables[] = {
    {Table::kModels, "models/"},
    {Table::kProfiles, "profiles/"},
    {Table::kBudgets, "budgets/"},
    {Table::kMeta, "meta/"},
};

std::string agreed_key(Table table, std::string_view key) {
  const auto at = std::ranges::find(kTables, table, [](const auto& e) { return e.first; });
  return std::string(at->second) + std::string(key);
}

std::vector<AgreedRow> to_agreed(const std::vector<SettingRow>& rows) {
  std::vector<AgreedRow> agreed;
  for (const SettingRow& row : rows) {
    AgreedRow& to = agreed.emplace_back();
    to.key = agreed_key(row.table, row.key);
    if (row.value) {
      to.value.emplace(reinterpret_cast<const char*>(row.value->data()), row.value->size());
    }
  }
  return agreed;
}

// A program that writes to etcd can write a tenant that no configuration could have.
Status check_stored_tenant(const SettingRow& row) {
  if (row.table != Table::kMeta || !row.value) return {};
  const auto tenant = decode_stored_tenant(*row.value);
  return tenant.ok() ? check_tenant(config_of(*tenant)) : Status();
}

}  // namespace

Result<std::vector<AgreedRow>> SettingsCopy::rows() {
  PRECIS_ASSIGN(const std::vector<SettingRow> settings, catalog_.settings());
  std::vector<AgreedRow> rows = to_agreed(settings);
  std::ranges::move(applications_.rows(), std::back_inserter(rows));
  return rows;
}

std::vector<AgreedRow> SettingsCopy::own_changes() {
  std::vector<SettingRow> rows = catalog_.own_changes();
  if (catalog_.cluster_id().empty()) rows.push_back(Catalog::cluster_id_row(cluster_id_));
  return to_agreed(rows);
}

std::string SettingsCopy::identity() const {
  return agreed_key(Table::kMeta, Catalog::cluster_id_row("").key);
}

Status SettingsCopy::take(std::vector<AgreedRow> rows, cluster::LeftOut& left_out) {
  std::vector<SettingRow> settings;
  for (const AgreedRow& row : rows) {
    if (AgreedApplications::is_key(row.key)) continue;
    const auto table = std::ranges::find_if(
        kTables, [&](const auto& each) { return row.key.starts_with(each.second); });
    if (table == std::end(kTables)) {
      left_out[row.key] = Status::unsupported(
          "a setting of the cluster is of a kind that this version of precisd does not know: run "
          "one version on all nodes");
      continue;
    }
    SettingRow to{table->first, row.key.substr(table->second.size()), std::nullopt};
    if (row.value) {
      const Bytes bytes = std::as_bytes(std::span(*row.value));
      to.value.emplace(bytes.begin(), bytes.end());
    }
    if (const Status status = check_stored_tenant(to); !status.ok()) {
      left_out[row.key] = status;
    } else {
      settings.push_back(std::move(to));
    }
  }
  const bool has_settings = !settings.empty();
  if (has_settings) {
    PRECIS_ASSIGN(const Taken taken, catalog_.take_settings(std::move(settings)));
    for (const Taken::LeftOut& row : taken.left_out) {
      left_out[agreed_key(row.table, row.key)] =
          row.why.with_context("a setting of the cluster is left out");
    }
    taken_(taken);
  }
  const cluster::AgreedRows* const agreed = rows_;
  const bool is_joining = agreed == nullptr || !agreed->known();
  for (const AgreedRow& row : rows) {  // after the budgets that they apply
    if (!AgreedApplications::is_key(row.key)) continue;
    const Status status = applications_.take(row, is_joining);
    if (!status.ok()) left_out[row.key] = status;
  }
  if (has_settings) applications_.begin_late();
  return {};
}

void SettingsCopy::begin() {
  catalog_.agree_by([this](const SettingsCatalog::Plan& plan) {
    cluster::AgreedRows* const rows = rows_;
    if (rows == nullptr) return Status::rejected("the node is joining its cluster", 500);
    return rows->change([&]() -> Result<std::vector<AgreedRow>> {
      PRECIS_ASSIGN(const std::vector<SettingRow> planned, plan());
      return to_agreed(planned);
    });
  });
}

}  // namespace precis
