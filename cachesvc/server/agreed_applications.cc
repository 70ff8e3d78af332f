#include "cachesvc/server/agreed_applications.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/tenants_in_force.h"
#include "precis/catalog_row.h"

namespace precis {
namespace {

using cluster::AgreedRow;
using Rows = std::vector<AgreedRow>;

// etcd keeps replaced rows for a while. A tenant that begins one application after another must not
// fill it.
constexpr std::size_t kRowBytesMax = 64 << 10;
constexpr std::uint64_t kNumberMax = 1ull << 62;

// The beginning of a key; a tenant's name follows.
constexpr std::string_view kApplications = "applications/", kCounts = "counts/";

std::string key_of(const std::string& tenant, bool dry_run) {
  return std::string(dry_run ? kCounts : kApplications) + tenant;
}

AgreedRow row_of(const std::string& tenant, bool dry_run, const msg::BudgetRevision& row) {
  const std::vector<std::byte> bytes = encode(StoredRevision{tenant, row});
  AgreedRow made{key_of(tenant, dry_run), std::nullopt};
  made.value.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return made;
}

}  // namespace

bool AgreedApplications::is_key(std::string_view key) {
  return key.starts_with(kApplications) || key.starts_with(kCounts);
}

msg::BudgetRevision AgreedApplications::to_row(const BudgetsToApply& budgets) {
  msg::BudgetRevision row;
  row.changes = budgets.changes;
  row.set_unix_ms = budgets.stored_by_ms;
  if (budgets.smaller_only) row.rollback_to = 0;
  if (!budgets.to_limit) return row;
  for (msg::BudgetChange& change : row.changes) change.after.keep.reset();
  return row;
}

BudgetsToApply AgreedApplications::from_row(const msg::BudgetRevision& row) {
  BudgetsToApply budgets;
  budgets.changes = row.changes;
  budgets.smaller_only = row.rollback_to.has_value();
  budgets.to_limit =
      !budgets.smaller_only && std::ranges::none_of(row.changes, [](const msg::BudgetChange& each) {
        return each.after.keep.has_value();
      });
  budgets.stored_by_ms = row.set_unix_ms;
  return budgets;
}

Rows AgreedApplications::rows() const {
  const std::lock_guard lock(mutex_);
  Rows rows;
  for (const auto& [key, kept] : kept_) rows.push_back({key, kept.value});
  return rows;
}

std::uint64_t AgreedApplications::newest_number(const std::string& tenant) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t newest = 0;
  for (const bool dry_run : {false, true}) {
    const auto kept = kept_.find(key_of(tenant, dry_run));
    if (kept != kept_.end()) newest = std::max(newest, kept->second.row.application);
  }
  return newest;
}

Status AgreedApplications::change(const cluster::AgreedRows::Plan& plan) const {
  return parts_.membership->agreed().change(plan);
}

Result<std::uint64_t> AgreedApplications::begin(const std::string& tenant,
                                                const BudgetsToApply& budgets,
                                                std::uint64_t revision, bool dry_run) {
  msg::BudgetRevision row = to_row(budgets);
  row.number = revision;
  PRECIS_TRY(change([&]() -> Result<Rows> {
    const std::uint64_t newest = parts_.catalog.budget_revisions(tenant, {0, 0}).newest;
    if (newest != revision) {
      return Status::conflict("the budgets are at revision " + std::to_string(newest) +
                              " already, not " + std::to_string(revision));
    }
    row.application = newest_number(tenant) + 1;
    row.set_unix_ms = parts_.clock.unix_ms();
    AgreedRow made = row_of(tenant, dry_run, row);
    if (made.value->size() > kRowBytesMax) {
      return Status::out_of_space(
          "an application of budgets has at most 64 KiB of changes in a cluster, and this one "
          "has " +
          std::to_string(made.value->size() >> 10) + " KiB: change fewer budgets at a time");
    }
    return Rows{std::move(made)};
  }));
  return row.application;
}

Status AgreedApplications::end(const std::string& tenant, std::uint64_t number) {
  return change([&]() -> Result<Rows> {
    const std::uint64_t newest = newest_number(tenant);
    bool is_known = number == 0;
    Rows ended;
    const std::lock_guard lock(mutex_);
    for (const bool dry_run : {false, true}) {
      const auto kept = kept_.find(key_of(tenant, dry_run));
      if (kept == kept_.end()) continue;
      msg::BudgetRevision row = kept->second.row;
      if (number != 0 && number != row.application) continue;
      is_known = true;
      if (row.changes.empty()) continue;
      row.changes.clear();
      ended.push_back(row_of(tenant, dry_run, row));
    }
    if (is_known) return ended;
    return Status::conflict((newest == 0
                                 ? std::string("no application of budgets is known")
                                 : "application " + std::to_string(newest) + " is the newest") +
                            ", not " + std::to_string(number));
  });
}

Status AgreedApplications::forget(const std::string& tenant) {
  return change([&]() -> Result<Rows> {
    Rows gone;
    const std::lock_guard lock(mutex_);
    for (const bool dry_run : {false, true}) {
      std::string key = key_of(tenant, dry_run);
      if (kept_.contains(key)) gone.push_back({std::move(key), std::nullopt});
    }
    return gone;
  });
}

Status AgreedApplications::take(const AgreedRow& row, bool is_joining) {
  Kept kept;
  kept.dry_run = row.key.starts_with(kCounts);
  kept.tenant = row.key.substr((kept.dry_run ? kCounts : kApplications).size());
  if (row.value) {
    PRECIS_ASSIGN(StoredRevision stored,
                  decode_stored_revision(std::as_bytes(std::span(*row.value))));
    if (stored.tenant != kept.tenant) {
      return Status::corruption("an application of budgets has the key of another tenant's");
    }
    const std::uint64_t number = stored.revision.application;
    if (number == 0 || number > kNumberMax) {
      return Status::corruption("an application of budgets has the number " +
                                std::to_string(number));
    }
    kept.value = *row.value;
    kept.row = std::move(stored.revision);
  }
  {
    const std::lock_guard lock(mutex_);
    if (row.value) {
      kept_[row.key] = kept;
    } else {
      kept_.erase(row.key);
    }
  }
  if (kept.dry_run && is_joining) return {};
  parts_.loop.post([this, kept = std::move(kept)] { begin_here(kept, /*again=*/true); });
  return {};
}

void AgreedApplications::apply(bool again) {
  parts_.loop.post([this, again] {
    std::vector<Kept> kept;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, each] : kept_) {
        if (!each.dry_run && !each.row.changes.empty()) kept.push_back(each);
      }
    }
    for (const Kept& each : kept) begin_here(each, again);
  });
}

void AgreedApplications::begin_here(const Kept& kept, bool again) const {
  BudgetApplications& applications = parts_.applications;
  if (kept.value.empty()) return applications.forget(kept.tenant);
  if (kept.row.changes.empty()) return applications.end(kept.tenant, kept.dry_run);
  const bool is_old = kept.dry_run && kept.row.application != newest_number(kept.tenant);
  if (is_old || parts_.catalog.budget_revisions(kept.tenant, {0, 0}).newest != kept.row.number) {
    return;
  }
  const BudgetApplications::Agreed which{kept.row.application, kept.row.number, kept.dry_run,
                                         kept.row.set_unix_ms};
  if (!again && applications.has_begun(kept.tenant, which)) return;
  const TenantConfig* const known = parts_.in_force.find(kept.tenant);
  if (known == nullptr) return;
  applications.follow(Owner(kept.tenant, Weight(known->weight)), from_row(kept.row), which);
}

}  // namespace precis
