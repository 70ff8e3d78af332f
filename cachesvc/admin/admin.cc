#include "cachesvc/admin/admin.h"

#include <atomic>
#include <utility>

#include "cachesvc/admin/call.h"
#include "cachesvc/admin/event_stream.h"
#include "cachesvc/admin/guard.h"
#include "cachesvc/admin/http_server.h"
#include "cachesvc/admin/metrics_text.h"
#include "cachesvc/admin/openapi.h"
#include "cachesvc/admin/page.h"
#include "cachesvc/admin/routes.h"
#include "cachesvc/net/address.h"
#include "cachesvc/server/read_tls.h"
#include "precis/limits.h"

namespace precis::admin {
namespace {

using Reply = HttpServer::Reply;

HttpResponse plain(std::string text) { return {200, std::move(text), "text/plain; charset=utf-8"}; }

}  // namespace

struct Admin::Impl {
  Impl(const Config& config, Runtime& runtime)
      : clock(runtime.clock()),
        is_closed(!config.admin_token.empty() || !config.admin_tls_ca.empty()),
        guard(config.admin_token, is_loopback(config.admin), runtime.clock(),
              [this](const std::string& from, const Status& why) { note_refused(from, why); }) {}

  // All run on the server's thread.
  void handle(HttpRequest request, Reply reply);
  void answer_ready(Service& serving, Reply reply);
  void answer_metrics(Service& serving, Reply reply);
  void answer_call(Service& serving, const HttpRequest& request, Reply reply);
  void answer_events(Service& serving, const HttpRequest& request, msg::ListEvents asked,
                     Reply reply);
  void note_refused(const std::string& from, const Status& why);

  const Clock& clock;
  const bool is_closed;                    // asks for a token or a certificate
  std::atomic<Service*> service{nullptr};  // null: the service is being opened
  // Calls that the loop has not answered; also counted after the HTTP request has timed out.
  std::shared_ptr<std::atomic<std::uint32_t>> calls =
      std::make_shared<std::atomic<std::uint32_t>>(0);
  Guard guard;
  std::unique_ptr<HttpServer> server;  // destroyed first: its thread uses the rest
};

void Admin::Impl::handle(HttpRequest request, Reply reply) {
  const auto& parts = request.target.parts;
  const std::string_view first = parts.empty() ? std::string_view() : parts[0];
  const bool is_get = request.method == Method::kGet;
  if (is_get && parts.size() == 1 && first == "healthz") return reply(plain("ok\n"));
  if (is_get && request.target.parts == std::vector<std::string>{"api", "v1", "openapi.json"}) {
    return reply({200, openapi_json()});
  }
  if (const PageFile* const file = is_get ? find_page_file(request.target) : nullptr) {
    return reply(page_response(*file, request));
  }
  Service* const serving = service.load();
  if (serving == nullptr) {
    return reply(error_response(Status::unavailable("the service is recovering its data")));
  }
  if (is_get && parts.size() == 1 && first == "readyz") {
    return answer_ready(*serving, std::move(reply));
  }
  if (is_get && parts.size() == 1 && first == "metrics") {
    return answer_metrics(*serving, std::move(reply));
  }
  answer_call(*serving, request, std::move(reply));
}

void Admin::Impl::answer_ready(Service& serving, Reply reply) {
  serving.loop().post([&serving, reply = std::move(reply)] {
    const Status ready = serving.operators().ready();
    reply(ready.ok() ? plain("ready\n") : error_response(ready));
  });
}

// The loop copies its own numbers; the rows of tenants are made on this thread.
void Admin::Impl::answer_metrics(Service& serving, Reply reply) {
  serving.loop().post([&serving, reply = std::move(reply), post = server->poster()] {
    OperatorAccess& access = serving.operators();
    post([&access, reply, process = access.monitored()] {
      std::vector<OperatorAccess::Stored> tenants;
      for (const std::string& tenant : process.tenants) tenants.push_back(access.stored(tenant));
      reply({200, metrics_text(process, tenants), kMetricsContentType});
    });
  });
}

void Admin::Impl::answer_call(Service& serving, const HttpRequest& request, Reply reply) {
  const auto route = find_route(request.method, request.target);
  if (!route.ok()) {
    const bool other_method = route.status().code() == StatusCode::kUnsupported;
    return reply(error_response(other_method ? 405 : 404, route.status()));
  }
  auto body = read_request(**route, request);
  if (!body.ok()) return reply(error_response(body.status()));
  // The answers have tokens, which also admit clients from other hosts.
  if (!is_closed && msg::kind_of(*body).role == Role::kAdmin) {
    return reply(error_response(Status::denied(
        "requests that need the role admin are answered only on an admin port with a token or "
        "certificates of operators: set admin_token_file or admin_tls_ca, or use precisctl as a "
        "tenant with that role")));
  }
  if (const auto* const events = std::get_if<msg::ListEvents>(&*body);
      events && request.accept.find("text/event-stream") != std::string::npos) {
    return answer_events(serving, request, *events, std::move(reply));
  }
  if (calls->load() >= limits::kAdminCallsMax) {
    return reply(error_response(Status::rejected(
        std::to_string(limits::kAdminCallsMax) + " requests are in progress, which is the limit",
        limits::kRetryAfterRequestsMs)));
  }
  ++*calls;
  // JSON is made on this thread. Everything that an answer uses is copied: it may come late.
  Called called = [counted = calls, post = server->poster(), reply,
                   target = request.target](Result<std::vector<std::byte>> answer) {
    --*counted;
    post([reply, target, answer = std::move(answer)] {
      if (!answer.ok()) return reply(error_response(answer.status()));
      const auto answered = reply_in(*answer);
      if (!answered.ok()) return reply(error_response(answered.status()));
      reply({200, message_json::json_text(reply_json(*answered, target))});
    });
  };
  serving.loop().post([&serving, tenant = tenant_of(request.target), from = request.from,
                       body = std::move(*body), called = std::move(called)]() mutable {
    call(serving.loop(), serving.operators(), tenant, std::move(from), body, std::move(called));
  });
}

// A browser that connects again names the last event that it has.
void Admin::Impl::answer_events(Service& serving, const HttpRequest& request, msg::ListEvents asked,
                                Reply reply) {
  if (!request.last_event_id.empty()) asked.position = request.last_event_id;
  auto held = serving.operators().count_stream();
  if (held == nullptr) {
    return reply(
        error_response(Status::rejected(std::to_string(limits::kEventStreamsMax) +
                                            " streams of events are open, which is the limit",
                                        limits::kEventHeartbeatSeconds * 1000)));
  }
  std::make_shared<EventStream>(
      serving, EventStream::Asked{tenant_of(request.target), request.from, std::move(asked)}, clock,
      server->poster(), std::move(held))
      ->begin(std::move(reply));
}

void Admin::Impl::note_refused(const std::string& from, const Status& why) {
  Service* const serving = service.load();
  if (serving == nullptr) return;
  serving->loop().post([serving, from, why] { serving->operators().note_refused(from, why); });
}

Status check_config(const Config& config) {
  if (config.admin.empty()) return {};
  const Status address = split_address(config.admin).status();
  if (!address.ok()) {
    return Status::invalid(config.origin("admin") + "admin: " + address.message());
  }
  if (!config.admin_token.empty() || !config.admin_tls_ca.empty() || is_loopback(config.admin)) {
    return {};
  }
  return Status::invalid(config.origin("admin") + "admin is '" + config.admin +
                         "', where other hosts could reach it without a token: set "
                         "admin_token_file, or admin_tls_ca to ask for a certificate, or use a "
                         "loopback address such as 127.0.0.1:7471");
}

Result<std::unique_ptr<Admin>> Admin::start(const Config& config, Runtime& runtime) {
  PRECIS_TRY(check_config(config));
  PRECIS_ASSIGN(auto tls, read_admin_tls(config));
  auto impl = std::make_unique<Impl>(config, runtime);
  Impl* const it = impl.get();
  auto server = HttpServer::listen(
      config.admin, runtime, std::move(tls),
      {[it](const HttpRequest& request) { return it->guard.check(request); },
       [it](const HttpRequest& request) { return it->guard.is_for_strangers(request); },
       [it](HttpRequest request, Reply reply) { it->handle(std::move(request), std::move(reply)); },
       [it](const std::string& from, const Status& why) { it->note_refused(from, why); }});
  PRECIS_TRY(server.status().with_context("admin"));
  impl->server = std::move(*server);
  return std::unique_ptr<Admin>(new Admin(std::move(impl)));
}

Admin::Admin(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Admin::~Admin() = default;
void Admin::serve(Service& service) {
  service.operators().on_tls(
      [it = impl_.get()](std::shared_ptr<TlsContext> tls) { it->server->use_tls(std::move(tls)); });
  impl_->service = &service;
}
const std::string& Admin::address() const { return impl_->server->address(); }

}  // namespace precis::admin
