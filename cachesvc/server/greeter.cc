#include "cachesvc/server/greeter.h"

#include <utility>

#include "cachesvc/server/login.h"
#include "cachesvc/server/version.h"

namespace precis {

Transport::Greeting Greeter::greet(const Transport::LoginAttempt& attempt) {
  auto tenant = admit(attempt);
  if (!tenant.ok()) {
    note_refused({Tenants::name_of(attempt.hello.tenant), attempt.hello.client, attempt.peer},
                 tenant.status());
    return {tenant.status(), server_name(), ""};
  }
  admitted_ = std::move(*tenant);
  return {Status(), server_name(), admitted_.token, !parts_.config.cluster_etcd.empty()};
}

Result<Tenant> Greeter::admit(const Transport::LoginAttempt& attempt) {
  PRECIS_ASSIGN(Tenant tenant, log_in(attempt, parts_.tenants, parts_.wrong_proofs));
  // Checks the quota that the Peer takes after its welcome.
  Quota::Part part(parts_.admission.connections, tenant.owner(nullptr));
  PRECIS_TRY(Quota::take(part, 1).status());
  return tenant;
}

void Greeter::note_refused(const AuditWho& who, const Status& why) {
  ++parts_.metrics.connections_refused;
  parts_.audit.write(who, {.what = "Connect", .outcome = why});
  if (!refused_.allow()) return;
  parts_.log.warn("client refused", {{"from", who.from}, {"status", why.to_string()}});
}

void Greeter::tell_suppressed() {
  if (const unsigned more = refused_.take_suppressed(); more > 0) {
    parts_.log.warn("more clients refused", {{"count", more}});
  }
}

}  // namespace precis
