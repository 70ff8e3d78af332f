// Decides who may use the admin port. Server's thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cachesvc/admin/http_message.h"
#include "cachesvc/base/clock.h"
#include "cachesvc/server/wrong_proofs.h"

namespace precis::admin {

class Guard {
 public:
  // `token`: what requests must show; empty for none. `loopback`: only this machine reaches the
  // port. `refused` is told of wrong tokens.
  Guard(std::string token, bool loopback, const Clock& clock,
        std::function<void(const std::string& from, const Status& why)> refused)
      : token_(std::move(token)),
        loopback_(loopback),
        wrong_(clock),
        refused_(std::move(refused)) {}

  // The response to a request that is refused, none if it is not:
  // - A page of another site that the operator's browser shows must not act in the operator's name.
  //   A request with another Origin than the port's own is refused. On a loopback port, a Host that
  //   is no loopback is refused too, because another site's name may point there (DNS rebinding).
  // - Without the token, only probes (/healthz and /readyz) and the files of the page are answered.
  //   The files have no data of the service. After a few wrong tokens, an address must wait.
  std::optional<HttpResponse> check(const HttpRequest& request);
  // Whether a request is answered without the token although the port has one. Such a request does
  // not show who has made it.
  bool is_for_strangers(const HttpRequest& request) const;

 private:
  Status check_site(const HttpRequest& request) const;
  Status check_token(const HttpRequest& request);

  const std::string token_;
  const bool loopback_;
  WrongProofs wrong_;
  const std::function<void(const std::string&, const Status&)> refused_;
};

// Whether requests for it need no token: they tell only whether the service is alive and ready.
bool is_probe(const Target& target);

}  // namespace precis::admin
