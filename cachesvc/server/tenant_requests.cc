#include "cachesvc/server/tenant_requests.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cachesvc/base/config_changes.h"
#include "cachesvc/base/counted.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/server/agreed_applications.h"
#include "cachesvc/server/purge.h"
#include "cachesvc/server/tenants_in_force.h"
#include "precis/greeting.h"
#include "precis/limits.h"

namespace precis {
namespace {

// 32 random bytes in hexadecimal digits.
StoredToken new_token(std::uint64_t now_ms) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte each : make_nonce()) {
    const auto byte = std::to_integer<unsigned>(each);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return {std::move(text), now_ms};
}

Status unknown(const std::string& name) {
  return Status::not_found("there is no tenant '" + name + "'; precisctl tenant ls lists them");
}

std::string text_of(const StoredTenant& row) {
  const TenantConfig tenant = config_of(row);
  return tenant_text(&tenant);
}

// An admin's request must not end the token with which the admin is connected.
Status check_not_own(const Caller& caller, const StoredTenant& row, std::size_t kept) {
  for (std::size_t t = kept; t < row.tokens.size(); ++t) {
    if (row.name != caller.tenant.name || row.tokens[t].text != caller.tenant.token) continue;
    return Status::conflict(
        "this connection uses the token that would end; connect with a newer one first");
  }
  return {};
}

}  // namespace

Status TenantRequests::check_not_configured(const std::string& name) const {
  const TenantConfig* const known = in_force_.find(name);
  if (known == nullptr || known->is_stored()) return {};
  return Status::conflict("tenant '" + name +
                          "' is in the configuration: change it there, and reload the service");
}

Status TenantRequests::check_use(const std::string& name, std::uint64_t limit) const {
  const std::uint64_t stored = catalog_.totals(name).stored_bytes;
  const std::uint64_t high = CapacityManager::high_mark(limit);
  if (limit == 0 || stored <= high) return {};
  return Status::conflict("tenant '" + name + "' stores " + std::to_string(stored) +
                          " B, more than the " + std::to_string(high) +
                          " B up to which a max_disk_bytes of " + std::to_string(limit) +
                          " B leaves segments alone: the service would trim and remove some; "
                          "give a larger limit, or set this one with below_use (precisctl "
                          "tenant set --below-use)");
}

Result<msg::TenantRow> TenantRequests::row_of(const std::string& name) const {
  const TenantConfig* const known = in_force_.find(name);
  if (known == nullptr) return unknown(name);
  const std::vector<StoredTenant> rows = catalog_.stored_tenants();
  const auto row = std::ranges::find(rows, name, &StoredTenant::name);
  return in_force_.describe(*known, row == rows.end() ? nullptr : &*row);
}

Task<Status> TenantRequests::change(std::string name, Catalog::TenantChange change) {
  PRECIS_CO_TRY(co_await caller_.changed([&] { return catalog_.change_tenant(name, change); }));
  in_force_.stored_changed();
  co_return Status();
}

Task<Answer> TenantRequests::on(msg::AddTenant request) {
  PRECIS_CO_TRY(check_not_configured(request.name));
  const std::uint64_t now_ms = caller_.parts.clock.unix_ms();
  StoredTenant added{request.name,
                     request.role.empty() ? std::string(role_name(Role::kWriter)) : request.role,
                     request.weight,
                     request.salt,
                     {new_token(now_ms)},
                     request.max_disk_bytes,
                     request.max_memory_bytes,
                     request.max_puts,
                     request.max_requests_per_s,
                     now_ms};
  PRECIS_CO_TRY(check_tenant(config_of(added)));
  PRECIS_CO_TRY(co_await change(request.name, [&](std::optional<StoredTenant>& row) -> Status {
    if (row) {
      return Status::conflict("there is a tenant '" + row->name +
                              "' already; precisctl tenant set changes it");
    }
    // Objects of an earlier tenant of this name become its own.
    PRECIS_TRY(check_use(request.name, request.max_disk_bytes));
    row = added;
    return {};
  }));
  caller_.note({.request = "AddTenant",
                .event = "tenant added",
                .of = request.name,
                .text = text_of(added),
                .is = text_of(added)});
  PRECIS_CO_ASSIGN(auto row, row_of(request.name));
  co_return msg::ReplyBody(msg::IssuedToken{std::move(row), added.tokens.front().text});
}

Task<Answer> TenantRequests::on(msg::ListTenants request) {
  std::vector<TenantConfig> all = in_force_.list();
  std::ranges::sort(all, {}, &TenantConfig::name);
  const std::vector<StoredTenant> rows = catalog_.stored_tenants();  // by name
  msg::Tenants page;
  for (const TenantConfig& tenant : all) {
    if (tenant.name <= request.after) continue;
    if (page.rows.size() == limits::kListPageRowsMax) {
      page.next = page.rows.back().name;
      break;
    }
    const auto row = std::ranges::lower_bound(rows, tenant.name, {}, &StoredTenant::name);
    const bool found = row != rows.end() && row->name == tenant.name;
    page.rows.push_back(in_force_.describe(tenant, found ? &*row : nullptr));
  }
  co_return msg::ReplyBody(std::move(page));
}

Task<Answer> TenantRequests::on(msg::ShowTenant request) { co_return answer(row_of(request.name)); }

Task<Answer> TenantRequests::on(msg::ChangeTenant request) {
  PRECIS_CO_TRY(check_not_configured(request.name));
  const bool own = request.name == caller_.tenant.name;
  if (own && !request.role.empty() && request.role != role_name(caller_.tenant.role)) {
    co_return Status::conflict("a tenant cannot change its own role: ask as another admin");
  }
  std::string was, is;
  PRECIS_CO_TRY(co_await change(request.name, [&](std::optional<StoredTenant>& row) -> Status {
    if (!row) return unknown(request.name);
    if (!request.below_use) {
      PRECIS_TRY(check_use(request.name, request.max_disk_bytes.value_or(0)));
    }
    was = text_of(*row);
    if (!request.role.empty()) row->role = request.role;
    row->weight = request.weight.value_or(row->weight);
    row->max_disk_bytes = request.max_disk_bytes.value_or(row->max_disk_bytes);
    row->max_memory_bytes = request.max_memory_bytes.value_or(row->max_memory_bytes);
    row->max_puts = request.max_puts.value_or(row->max_puts);
    row->max_requests_per_s = request.max_requests_per_s.value_or(row->max_requests_per_s);
    is = text_of(*row);
    return check_tenant(config_of(*row));
  }));
  caller_.note({"ChangeTenant", "tenant changed", request.name, is, was, is});
  co_return answer(row_of(request.name));
}

Task<Answer> TenantRequests::on(msg::RotateToken request) {
  PRECIS_CO_TRY(check_not_configured(request.name));
  const StoredToken token = new_token(caller_.parts.clock.unix_ms());
  std::string is;
  PRECIS_CO_TRY(co_await change(request.name, [&](std::optional<StoredTenant>& row) -> Status {
    if (!row) return unknown(request.name);
    const std::size_t kept = request.drop_old ? 1 : limits::kTokensPerTenantMax - 1;
    PRECIS_TRY(check_not_own(caller_, *row, kept));
    row->tokens.resize(std::min(kept, row->tokens.size()));
    if (!request.drop_old) row->tokens.insert(row->tokens.begin(), token);
    is = counted(row->tokens.size(), "valid token");
    return {};
  }));
  caller_.note({.request = "RotateToken",
                .event = request.drop_old ? "old token of a tenant ended" : "new token of a tenant",
                .of = request.name,
                .text = is,
                .is = is});
  PRECIS_CO_ASSIGN(auto row, row_of(request.name));
  co_return msg::ReplyBody(msg::IssuedToken{std::move(row), request.drop_old ? "" : token.text});
}

Task<Result<msg::Removed>> TenantRequests::purge(std::string tenant) {
  msg::Removed removed;
  for (bool more = true; more;) {
    if (caller_.gone) co_return Status::canceled("the client has left");
    Purged some;
    const Status status =
        co_await caller_.changed([&] { return purge_some(catalog_, tenant, some); });
    for (const SegmentId& id : some.payload) caller_.parts.hot_tier.erase(id);
    caller_.parts.memory.retry();
    removed.segments += some.removed.segments;
    removed.bytes += some.removed.bytes;
    more = some.rows > 0;
    PRECIS_CO_TRY(status);
  }
  co_return removed;
}

Task<Answer> TenantRequests::on(msg::RemoveTenant request) {
  if (request.name == caller_.tenant.name) {
    co_return Status::conflict("a tenant cannot remove itself: ask as another admin");
  }
  const TenantConfig* const known = in_force_.find(request.name);
  if (known == nullptr) co_return unknown(request.name);
  // Then only the stored row is removed, which is not in force. The objects are the configured
  // tenant's.
  const bool only_row = !known->is_stored();
  msg::Removed removed;
  if (request.purge && !only_row) {
    caller_.parts.applications.forget(request.name);
    PRECIS_CO_ASSIGN(removed, co_await purge(request.name));
  }
  const auto check_no_segments = [&]() -> Status {
    const Catalog::Totals totals = catalog_.totals(request.name);
    if (totals.segments == 0 || only_row) return {};
    return Status::conflict(
        "tenant '" + request.name + "' has " + counted(totals.segments, "segment") + " of " +
        std::to_string(totals.stored_bytes) + " B; remove them first, or with it (--purge)");
  };
  if (request.here_only) {
    PRECIS_CO_TRY(check_no_segments());
    if (removed.segments > 0) {
      caller_.note({"RemoveTenant", "tenant purged at this node", request.name,
                    counted(removed.segments, "segment") + " purged"});
    }
    co_return msg::ReplyBody(removed);
  }
  const Status configured = check_not_configured(request.name);
  std::string was;
  PRECIS_CO_TRY(co_await change(request.name, [&](std::optional<StoredTenant>& row) -> Status {
    if (!row && only_row) return configured;
    if (!row) return unknown(request.name);
    PRECIS_TRY(check_no_segments());
    was = text_of(*row);
    row.reset();
    return {};
  }));
  if (!only_row) {  // what it had set
    caller_.parts.applications.forget(request.name);
    PRECIS_CO_TRY(co_await caller_.changed([&]() -> Status {
      AgreedApplications* const agreed = caller_.parts.agreed_applications;
      if (agreed != nullptr) PRECIS_TRY(agreed->forget(request.name));
      return request.purge ? catalog_.remove_budgets(request.name).status() : Status();
    }));
  }
  caller_.note({"RemoveTenant", "tenant removed", request.name,
                counted(removed.segments, "segment") + " purged", was});
  co_return msg::ReplyBody(removed);
}

}  // namespace precis
