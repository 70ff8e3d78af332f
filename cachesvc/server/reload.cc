#include "cachesvc/server/reload.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "cachesvc/base/config_changes.h"
#include "cachesvc/server/openness.h"
#include "cachesvc/server/part_settings.h"

namespace precis {
namespace {

const AuditWho kOperator{.from = "SIGHUP"};

// A file that was truncated while it was edited must not admit everybody.
Status check_stays_closed(const Config& before, const Config& next) {
  constexpr char kNextStep[] =
      ": any client would be admitted; if you want that, restart the service";
  const auto configured =
      std::ranges::count_if(before.tenants, std::not_fn(&TenantConfig::is_stored));
  if (configured > 0 && next.tenants.empty()) {
    return Status::invalid("the configuration has no tenants any more; it had " +
                           std::to_string(configured) + kNextStep);
  }
  for (const TenantConfig& tenant : next.tenants) {
    const auto was = std::ranges::find(before.tenants, tenant.name, &TenantConfig::name);
    if (was == before.tenants.end() || !was->needs_token() || tenant.needs_token()) continue;
    return Status::invalid("tenant '" + tenant.name + "' has no token any more" + kNextStep);
  }
  if (!before.tls_client_ca.empty() && next.tls_client_ca.empty() && !next.tls_cert.empty()) {
    return Status::invalid(std::string("there is no tls_client_ca any more") + kNextStep);
  }
  if (!before.admin_tls_ca.empty() && next.admin_tls_ca.empty() && !next.admin_tls_cert.empty()) {
    return Status::invalid(
        "there is no admin_tls_ca any more: operators without a certificate would be admitted; if "
        "you want that, restart the service");
  }
  return {};
}

}  // namespace

void Reloader::reload(Read read, std::function<void()> done) {
  // The latest `read` reads the newest configuration, so it serves the earlier reloads too.
  waiting_.read = std::move(read);
  waiting_.done.push_back(std::move(done));
  if (!std::exchange(busy_, true)) spawn(run());
}

Result<Reloader::Next> Reloader::prepare(const Read& read) {
  PRECIS_ASSIGN(Config config, read());
  PRECIS_TRY(config.validate());
  PRECIS_ASSIGN(const Log::Level level, Log::parse_level(config.log_level));
  PRECIS_ASSIGN(Audit::Sink audit, Audit::Sink::open(config.audit_log));
  PRECIS_ASSIGN(auto tls, read_tls(config));
  PRECIS_ASSIGN(auto admin_tls, read_admin_tls(config));
  return Next{std::move(config), level, std::move(audit), std::move(tls), std::move(admin_tls)};
}

Task<void> Reloader::run() {
  while (!waiting_.done.empty()) {
    const Waiting now = std::exchange(waiting_, {});
    auto next =
        co_await run_on(parts_.storage, parts_.loop, Owner(), [&] { return prepare(now.read); });
    const Status may = next.ok() ? check_stays_closed(parts_.config, next->config) : next.status();
    if (may.ok()) {
      apply(std::move(next).value());
    } else {
      refuse(may);
    }
    for (const auto& done : now.done) done();
  }
  busy_ = false;
}

void Reloader::refuse(const Status& why) {
  parts_.log.error("configuration not reloaded: the previous one stays in force",
                   {{"status", why.to_string()}});
  parts_.audit.write(kOperator, {.what = "Reload", .outcome = why});
}

void Reloader::apply(Next next) {
  const Config before = parts_.config;
  next.config.tenants = parts_.in_force.joined(std::move(next.config.tenants));
  const ConfigChanges changes = changes_between(before, next.config);
  parts_.config = with_live_settings(before, next.config);
  const Config& now = parts_.config;
  parts_.admission.requests.set_limit(now.max_requests);
  parts_.admission.puts.set_limit(now.max_puts);
  parts_.memory.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.put_room.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.disk_quota.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.capacity.set(capacity_settings(now));
  parts_.consolidator.set(consolidator_settings(now));
  parts_.in_force.apply();                  // also sets the limits of tenants
  parts_.audit.use(std::move(next.audit));  // reopened even if the path is the same
  // The more detailed of the two levels applies while the changes are logged.
  if (next.level < *Log::parse_level(before.log_level)) parts_.log.set_level(next.level);
  for (const SettingChange& change : changes.live) {
    parts_.log.info("setting changed",
                    {{"key", change.key}, {"was", change.from}, {"is", change.to}});
    parts_.audit.write(kOperator, {"Reload", change.key, change.from, change.to});
  }
  for (const SettingChange& change : changes.restart) {
    parts_.log.warn("setting differs, but needs a restart",
                    {{"key", change.key}, {"is", change.from}, {"file", change.to}});
  }
  if (next.tls && parts_.transport.is_encrypted()) {
    parts_.transport.use_tls(std::move(next.tls));
    parts_.log.info("the TLS files were read again, for new connections",
                    {{"tls_cert", now.tls_cert}});
  }
  if (next.admin_tls && use_admin_tls_ && !before.admin_tls_cert.empty()) {
    use_admin_tls_(std::move(next.admin_tls));
    parts_.log.info("the admin port's TLS files were read again, for new connections",
                    {{"admin_tls_cert", now.admin_tls_cert}});
  }
  if (changes.live.empty()) parts_.audit.write(kOperator, {.what = "Reload"});
  parts_.log.info("configuration reloaded",
                  {{"changed", changes.live.size()}, {"wait_for_restart", changes.restart.size()}});
  warn_of_exposed_files(parts_.log, now);
  tell_removed_tenants(before);
  tell_lower_limits(before);
  parts_.in_force.warn();
  parts_.log.set_level(next.level);
}

void Reloader::tell_lower_limits(const Config& before) const {
  const DiskQuota::Limits was = disk_limits(before);
  for (const DiskQuota::Scope& scope : parts_.disk_quota.scopes()) {
    const std::uint64_t most = CapacityManager::high_mark(scope.limit);
    const auto own = was.of_tenant.find(scope.tenant);
    const std::uint64_t limit = scope.tenant.empty()         ? was.of_all
                                : own == was.of_tenant.end() ? 0
                                                             : own->second;
    if (scope.limit == limit || scope.stored <= most) continue;
    parts_.log.warn("a limit is below what is stored: segments are trimmed and removed",
                    {{"tenant", scope.tenant.empty() ? "all" : scope.tenant},
                     {"max_disk_bytes", scope.limit},
                     {"stored_bytes", scope.stored},
                     {"to_free_bytes", scope.stored - most}});
  }
}

void Reloader::tell_removed_tenants(const Config& before) const {
  for (const TenantConfig& tenant : before.tenants) {
    if (parts_.in_force.find(tenant.name) != nullptr) continue;
    parts_.log.warn("tenant removed: its clients are no longer admitted, its stored data stays",
                    {{"tenant", tenant.name}});
  }
}

}  // namespace precis
