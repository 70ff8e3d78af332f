#include "cachesvc/trace/span_exporter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cachesvc/net/http_post.h"
#include "cachesvc/server/operator_access.h"
#include "cachesvc/trace/otlp_json.h"
#include "cachesvc/trace/span_queue.h"
#include "precis/limits.h"

namespace precis::trace {
namespace {

constexpr std::chrono::seconds kWait{limits::kSpanWaitSeconds};
constexpr std::chrono::seconds kPauseMax{limits::kSpanPauseSeconds};
constexpr HttpPost::Limits kPost = {.time = std::chrono::seconds(limits::kSpanPostSeconds),
                                    .last_time = std::chrono::seconds(limits::kSpanLastPostSeconds),
                                    .answer_bytes = limits::kSpanAnswerBytesMax};

Result<HttpEndpoint> parse_endpoint(const std::string& url) {
  if (url.starts_with("https://")) {
    return Status::invalid("'" + url +
                           "' has https, which Precis does not speak: name a collector on this "
                           "host with http, which sends the spans on with TLS");
  }
  auto endpoint = parse_http_endpoint(url);
  if (endpoint.ok() && !endpoint->encrypted && !endpoint->target.empty()) return endpoint;
  return Status::invalid("'" + url +
                         "' must be http://HOST:PORT/PATH, such as "
                         "http://127.0.0.1:4318/v1/traces");
}

// Posts spans. OK if the endpoint has accepted them.
Status send(HttpPost& post, const HttpEndpoint& to, std::string json) {
  PRECIS_ASSIGN(const HttpPost::Answer answer, post.post(to, std::move(json), kPost));
  if (answer.status >= 200 && answer.status < 300) return {};
  return Status::unavailable(to.authority + ": the endpoint answers with HTTP status " +
                             std::to_string(answer.status));
}

}  // namespace

struct SpanExporter::Impl {
  Impl(HttpEndpoint to, Runtime& runtime, Tracer& tracing)
      : endpoint(std::move(to)),
        tracer(tracing),
        queue(std::make_shared<SpanQueue>(runtime.clock())),
        thread(runtime.make_executor("traces", 1)) {}
  ~Impl() {
    post.hurry();
    queue->close();
    thread.reset();  // waits for run()
  }

  void run();

  const HttpEndpoint endpoint;
  Tracer& tracer;
  const std::shared_ptr<SpanQueue> queue;  // shared with the service, which may live longer
  HttpPost post;
  std::unique_ptr<Executor> thread;
};

// Nothing is sent twice: a collector that is overloaded must not get more because of that.
void SpanExporter::Impl::run() {
  std::chrono::seconds wait = kWait;
  for (bool last = false; !last;) {
    const bool failing = wait > kWait;
    const std::vector<RequestSpans> batch = queue->take(wait, /*until_full=*/!failing);
    last = queue->closed();
    if (batch.empty()) continue;
    std::size_t count = 0;
    for (const RequestSpans& request : batch) count += request.count();
    const Status sent = send(post, endpoint, otlp_json(batch));
    wait = sent.ok() ? kWait : std::min(2 * wait, kPauseMax);
    sent.ok() ? tracer.sent(count) : tracer.lost(count, sent);
  }
  for (auto left = queue->take({}, false); !left.empty(); left = queue->take({}, false)) {
    std::size_t count = 0;
    for (const RequestSpans& request : left) count += request.count();
    tracer.lost(count, Status::canceled("the service has stopped"));
  }
}

Status check_config(const Config& config) {
  if (config.otlp_endpoint.empty()) return {};
  return parse_endpoint(config.otlp_endpoint)
      .status()
      .with_context(config.origin("otlp_endpoint") + "otlp_endpoint");
}

std::unique_ptr<SpanExporter> SpanExporter::start(const Config& config, Runtime& runtime,
                                                  Service& service) {
  auto endpoint = parse_endpoint(config.otlp_endpoint);
  if (!endpoint.ok()) return nullptr;
  Tracer& tracer = service.operators().tracer();
  auto impl = std::make_unique<Impl>(std::move(endpoint).value(), runtime, tracer);
  tracer.on_spans(
      [queue = impl->queue](RequestSpans spans) { return queue->add(std::move(spans)); });
  impl->thread->post([impl = impl.get()] { impl->run(); });
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(impl)));
}

SpanExporter::SpanExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpanExporter::~SpanExporter() = default;

}  // namespace precis::trace
