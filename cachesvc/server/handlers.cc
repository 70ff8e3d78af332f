#include "cachesvc/server/handlers.h"

#include <string>
#include <utility>
#include <variant>

#include "cachesvc/server/know_settings.h"

namespace precis {
namespace {

// Passes the request to the first of the parts that takes it.
template <typename Request, typename Part, typename... Others>
Task<Answer> dispatch(std::uint64_t id, Request& request, Part& part, Others&... others) {
  if constexpr (requires { part.on(std::move(request)); }) {
    return part.on(std::move(request));
  } else if constexpr (requires { part.on(id, std::move(request)); }) {
    return part.on(id, std::move(request));
  } else {
    return dispatch(id, request, others...);
  }
}

Status check_role(const Tenant& tenant, const RequestKind& request) {
  if (tenant.role >= request.role) return {};
  return Status::denied(
      std::string(request.call) + " needs the role " + std::string(role_name(request.role)) +
      ", and tenant '" + tenant.name + "' has the role " + std::string(role_name(tenant.role)) +
      (request.role == Role::kAdmin
           ? ": connect as a [[tenant]] of the configuration with role = \"admin\""
           : ": connect as another tenant"));
}

}  // namespace

Handlers::Handlers(Caller caller, ReadRequests::Served served)
    : caller_(std::move(caller)),
      puts_(caller_),
      reads_(caller_, std::move(served)),
      models_(caller_),
      sessions_(caller_),
      prefixes_(caller_),
      budgets_(caller_),
      events_(caller_),
      status_(caller_),
      tenants_(caller_),
      backups_(caller_),
      cluster_(caller_) {}

Task<Answer> Handlers::handle(std::uint64_t id, msg::RequestBody body) {
  PRECIS_CO_TRY(check_role(caller_.tenant, msg::kind_of(body)));
  if (caller_.parts.membership != nullptr) {
    PRECIS_CO_TRY(co_await know_settings(caller_, body));
  }
  co_return co_await std::visit(
      [&](auto& request) {
        return dispatch(id, request, puts_, reads_, models_, sessions_, prefixes_, budgets_,
                        events_, status_, tenants_, backups_, cluster_);
      },
      body);
}

void Handlers::cancel() {
  caller_.gone = true;
  reads_.cancel();
  puts_.abort_all();
}

std::size_t Handlers::give_up_silent_puts(std::chrono::steady_clock::duration silence) {
  return puts_.give_up_silent(silence);
}

}  // namespace precis
