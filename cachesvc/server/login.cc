#include "cachesvc/server/login.h"

namespace precis {

Result<std::string> log_in(const Transport::Stranger& stranger, const Tenants& tenants,
                           WrongProofs& wrong_proofs) {
  const std::string tenant = Tenants::name_of(stranger.hello.tenant);
  PRECIS_TRY(wrong_proofs.may_try(stranger.address, tenant));
  const auto admitted = tenants.admit(stranger.hello, stranger.challenge);
  if (admitted.ok() || admitted.status().code() == StatusCode::kPermissionDenied) {
    using enum WrongProofs::Proof;
    const auto wrong = tenants.has(tenant) ? kWrong : kOfUnknownTenant;
    wrong_proofs.note(stranger.address, tenant, admitted.ok() ? kRight : wrong);
  }
  PRECIS_TRY(admitted.status());
  return admitted->token;
}

}  // namespace precis
