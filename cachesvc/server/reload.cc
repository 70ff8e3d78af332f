#include "cachesvc/server/reload.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "cachesvc/base/config_changes.h"
#include "cachesvc/server/capacity_limits.h"
#include "cachesvc/server/openness.h"

namespace precis {
namespace {

const AuditWho kOperator{.from = "SIGHUP"};

// A file that was truncated while it was edited must not admit everybody.
Status check_stays_closed(const Config& before, const Config& next) {
  constexpr char kNextStep[] =
      ": any client would be admitted; if you want that, restart the service";
  if (!before.tenants.empty() && next.tenants.empty()) {
    return Status::invalid("the configuration has no tenants any more; it had " +
                           std::to_string(before.tenants.size()) + kNextStep);
  }
  for (const TenantConfig& tenant : next.tenants) {
    const auto was = std::ranges::find(before.tenants, tenant.name, &TenantConfig::name);
    if (was == before.tenants.end() || was->token.empty() || !tenant.token.empty()) continue;
    return Status::invalid("tenant '" + tenant.name + "' has no token any more" + kNextStep);
  }
  if (!before.tls_client_ca.empty() && next.tls_client_ca.empty() && !next.tls_cert.empty()) {
    return Status::invalid(std::string("there is no tls_client_ca any more") + kNextStep);
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
  return Next{std::move(config), level, std::move(audit), std::move(tls)};
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
  const ConfigChanges changes = changes_between(before, next.config);
  parts_.config = with_live_settings(before, next.config);
  const Config& now = parts_.config;
  parts_.tenants.apply(now.tenants);
  parts_.admission.set_tenants(now.tenants);
  parts_.admission.requests.set_limit(now.max_requests);
  parts_.admission.puts.set_limit(now.max_puts);
  parts_.memory.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.put_room.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.disk_quota.set_wait(std::chrono::milliseconds(now.memory_wait_ms));
  parts_.capacity.set(capacity_settings(now));
  parts_.disk_quota.set_limits(disk_limits(now));
  parts_.catalog.set_pinned_limits(pinned_limits(now));
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
  if (changes.live.empty()) parts_.audit.write(kOperator, {.what = "Reload"});
  parts_.log.info("configuration reloaded",
                  {{"changed", changes.live.size()}, {"wait_for_restart", changes.restart.size()}});
  warn_of_exposed_files(parts_.log, now);
  end_changed_tenants(before);
  parts_.log.set_level(next.level);
}

// A client that used an old token connects again, and must prove the new one.
void Reloader::end_changed_tenants(const Config& before) {
  const Tenants was(before.tenants);
  for (const std::string& name : was.names()) {
    if (parts_.tenants.has_same(was, name)) continue;
    if (!parts_.tenants.has(name)) {
      parts_.log.warn("tenant removed: its clients are no longer admitted, its stored data stays",
                      {{"tenant", name}});
    }
    parts_.end_tenant(name, "the configuration of its tenant has changed");
  }
}

}  // namespace precis
