#include "cachesvc/trace/span_exporter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cachesvc/server/operator_access.h"
#include "cachesvc/trace/http_post.h"
#include "cachesvc/trace/otlp_json.h"
#include "cachesvc/trace/span_queue.h"
#include "precis/limits.h"

namespace precis::trace {
namespace {

constexpr std::chrono::seconds kWait{limits::kSpanWaitSeconds};
constexpr std::chrono::seconds kPauseMax{limits::kSpanPauseSeconds};

}  // namespace

struct SpanExporter::Impl {
  Impl(Endpoint endpoint, Runtime& runtime, Tracer& tracing)
      : tracer(tracing),
        queue(std::make_shared<SpanQueue>(runtime.clock())),
        post(std::move(endpoint)),
        thread(runtime.make_executor("traces", 1)) {}
  ~Impl() {
    post.hurry();
    queue->close();
    thread.reset();  // waits for run()
  }

  void run();

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
    const Status sent = post.post(otlp_json(batch));
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
