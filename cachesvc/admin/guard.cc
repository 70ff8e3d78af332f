#include "cachesvc/admin/guard.h"

#include <span>
#include <string_view>

#include "cachesvc/admin/page.h"
#include "cachesvc/net/address.h"
#include "precis/greeting.h"

namespace precis::admin {
namespace {

constexpr const char* kOperator = "operator";  // the name under which wrong tokens are counted
constexpr std::string_view kBearer = "Bearer ";

// `host`: a Host header, with or without a port.
bool is_loopback_host(const std::string& host) {
  const auto colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  return is_loopback(has_port ? host : host + ":80");
}

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         equal_in_constant_time(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

}  // namespace

bool is_probe(const Target& target) {
  return target.parts.size() == 1 && (target.parts[0] == "healthz" || target.parts[0] == "readyz");
}

std::optional<HttpResponse> Guard::check(const HttpRequest& request) {
  if (const Status site = check_site(request); !site.ok()) return error_response(site);
  if (token_.empty() || is_for_strangers(request)) return {};
  const Status status = check_token(request);
  if (status.ok()) return {};
  const bool must_wait = status.retry_after_ms() > 0;
  HttpResponse response = error_response(must_wait ? 429 : 401, status);
  if (!must_wait) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

bool Guard::is_for_strangers(const HttpRequest& request) const {
  const bool is_open = is_probe(request.target) || find_page_file(request.target) != nullptr;
  return !token_.empty() && is_open && request.method == Method::kGet;
}

Status Guard::check_site(const HttpRequest& request) const {
  if (loopback_ && !is_loopback_host(request.host)) {
    return Status::denied("the Host header is '" + request.host +
                          "': this port answers only to localhost, 127.0.0.1 and [::1]");
  }
  if (request.origin.empty()) return {};
  const auto scheme = request.origin.find("://");
  if (scheme != std::string::npos && request.origin.substr(scheme + 3) == request.host) return {};
  return Status::denied("the request comes from a page of another site: '" + request.origin + "'");
}

Status Guard::check_token(const HttpRequest& request) {
  const std::string_view shown = request.authorization;
  if (!shown.starts_with(kBearer)) {
    return Status::denied("give the token of admin_token_file: Authorization: Bearer TOKEN");
  }
  PRECIS_TRY(wrong_.may_try(request.from, kOperator));
  const bool right = equal(shown.substr(kBearer.size()), token_);
  wrong_.note(request.from, kOperator,
              right ? WrongProofs::Proof::kRight : WrongProofs::Proof::kWrong);
  if (right) return {};
  const Status wrong = Status::denied("the token is not that of admin_token_file");
  refused_(request.from, wrong);
  return wrong;
}

}  // namespace precis::admin
