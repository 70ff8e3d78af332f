#include "cachesvc/server/login.h"

namespace precis {

Result<Tenant> log_in(const Transport::LoginAttempt& attempt, const Tenants& tenants,
                      WrongProofs& wrong_proofs) {
  const std::string tenant = Tenants::name_of(attempt.hello.tenant);
  PRECIS_TRY(wrong_proofs.may_try(attempt.address, tenant));
  auto admitted = tenants.admit(attempt.hello, attempt.challenge);
  if (admitted.ok() || admitted.status().code() == StatusCode::kPermissionDenied) {
    using enum WrongProofs::Proof;
    const auto wrong = tenants.has(tenant) ? kWrong : kOfUnknownTenant;
    wrong_proofs.note(attempt.address, tenant, admitted.ok() ? kRight : wrong);
  }
  return admitted;
}

}  // namespace precis
