// Greets new connections: admits a client or refuses it, and records each refusal. Loop thread
// only.
#pragma once

#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/log_limiter.h"
#include "cachesvc/server/tenants.h"
#include "cachesvc/server/wrong_proofs.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Greeter {
 public:
  // All outlive the greeter.
  struct Parts {
    Tenants& tenants;
    WrongProofs& wrong_proofs;
    Admission& admission;
    Metrics& metrics;
    Audit& audit;
    Log& log;
    const Config& config;
  };
  explicit Greeter(const Parts& parts) : parts_(parts) {}

  Transport::Greeting greet(const Transport::LoginAttempt& attempt);
  // The tenant of the latest client that greet() admitted.
  const Tenant& admitted() const { return admitted_; }
  // Records a refused connection in the metrics, the audit log and the log. The log gets only the
  // first refusals of each second.
  void note_refused(const AuditWho& who, const Status& why);
  // Logs the number of refusals that had no line in the log. Call it every second.
  void tell_suppressed();

 private:
  Result<Tenant> admit(const Transport::LoginAttempt& attempt);

  const Parts parts_;
  Tenant admitted_;
  LogLimiter refused_;
};

}  // namespace precis
