#include "cachesvc/server/tracer.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace precis {

void Trace::stage(const char* name, Clock::Time begin, Clock::Time end) {
  begin = std::max(begin, began_);
  if (begin <= end) stages_.push_back({name, begin, end});
}

void Trace::end(const char* name, RequestLabels labels, StatusCode status,
                RequestSpans::Amounts amounts) {
  const Clock& clock = tracer_.clock();
  const std::uint64_t now_ns = clock.monotonic_ns();
  const std::uint64_t unix_offset_ns = clock.unix_ns() - now_ns;  // may wrap around
  const auto unix_ns = [&](Clock::Time time) {
    return unix_offset_ns + static_cast<std::uint64_t>(time.time_since_epoch().count());
  };
  RequestSpans spans;
  spans.context = context_;
  spans.request = {name, tracer_.new_id(), unix_ns(began_), unix_offset_ns + now_ns};
  for (const Stage& stage : stages_) {
    spans.stages.push_back({stage.name, tracer_.new_id(), unix_ns(stage.begin),
                            std::min(unix_ns(stage.end), spans.request.end_unix_ns)});
  }
  spans.labels = std::move(labels);
  spans.amounts = std::move(amounts);
  spans.status = status;
  tracer_.end(std::move(spans));
}

std::unique_ptr<Trace> Tracer::begin_if_sampled(std::string_view traceparent) {
  const auto given = parse_traceparent(traceparent);
  if (!given && !traceparent.empty()) ++metrics_.bad_traceparents;
  if (given) {
    return given->sampled ? std::make_unique<Trace>(*this, *given, clock().now()) : nullptr;
  }
  if (config_.trace_sample <= 0) return nullptr;
  constexpr double kMost = static_cast<double>(std::numeric_limits<std::uint64_t>::max());
  if (static_cast<double>(runtime_.random()) > config_.trace_sample * kMost) return nullptr;
  const TraceContext context{runtime_.random(), new_id(), 0, true};
  return std::make_unique<Trace>(*this, context, clock().now());
}

std::uint64_t Tracer::new_id() { return std::max<std::uint64_t>(1, runtime_.random()); }

bool Tracer::may_send(std::size_t count) {
  const double per_second = config_.trace_spans_per_s;
  const Clock::Time now = clock().now();
  const double passed = std::chrono::duration<double>(now - held_at_).count();
  held_ = std::min(per_second, held_ + passed * per_second);
  held_at_ = now;
  if (held_ <= 0) return false;
  held_ -= static_cast<double>(count);
  return true;
}

void Tracer::end(RequestSpans spans) {
  const std::size_t count = spans.count();
  if (may_send(count) && take_(std::move(spans))) return;
  metrics_.spans_dropped += static_cast<std::int64_t>(count);
}

void Tracer::sent(std::size_t count) {
  metrics_.spans += static_cast<std::int64_t>(count);
  if (losing_.exchange(false)) log_.info("spans are sent again");
}

void Tracer::lost(std::size_t count, const Status& why) {
  metrics_.spans_dropped += static_cast<std::int64_t>(count);
  if (losing_.exchange(true)) return;
  log_.warn("spans can't be sent: they are dropped", {{"status", why.to_string()}});
}

}  // namespace precis
