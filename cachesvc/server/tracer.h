// Traces: chooses the requests that are traced, and hands their spans to an exporter
// (cachesvc/trace). Without an exporter no request is traced.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/base/labeled.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/trace_context.h"

namespace precis {

struct Span {
  const char* name = "";
  std::uint64_t id = 0;
  std::uint64_t begin_unix_ns = 0, end_unix_ns = 0;
};

// The span of a traced request, and the spans of its stages, which lie within it.
struct RequestSpans {
  using Amounts = std::vector<std::pair<const char*, std::uint64_t>>;  // such as tokens

  TraceContext context;
  Span request;
  std::vector<Span> stages;
  RequestLabels labels;
  Amounts amounts;
  StatusCode status = StatusCode::kOk;

  std::size_t count() const { return 1 + stages.size(); }
};

class Tracer;

// A traced request in progress. Loop thread only.
class Trace {
 public:
  Trace(Tracer& tracer, const TraceContext& context, Clock::Time began)
      : tracer_(tracer), context_(context), began_(began) {}

  Clock::Time began() const { return began_; }
  // Adds a stage, without the part of it that lies before the request.
  void stage(const char* name, Clock::Time begin, Clock::Time end);
  // The request ends now. Called once.
  void end(const char* name, RequestLabels labels, StatusCode status,
           RequestSpans::Amounts amounts);

 private:
  struct Stage {
    const char* name;
    Clock::Time begin, end;
  };
  Tracer& tracer_;
  const TraceContext context_;
  const Clock::Time began_;
  std::vector<Stage> stages_;
};

class Tracer {
 public:
  // All outlive it. `config` is in force.
  Tracer(Runtime& runtime, Metrics& metrics, Log& log, const Config& config)
      : runtime_(runtime), metrics_(metrics), log_(log), config_(config) {}

  // Switches traces on. `take` gets the spans of each request that has ended, on the loop, and
  // returns false if it has no room for them. Call it before the service runs.
  using Take = std::function<bool(RequestSpans)>;
  void on_spans(Take take) { take_ = std::move(take); }

  // Begins the trace of a request. Null if the request is not traced: the caller's flag says so, or
  // without a valid traceparent, chance. Loop thread only, as end().
  std::unique_ptr<Trace> begin(std::string_view traceparent) {
    return take_ ? begin_if_sampled(traceparent) : nullptr;
  }
  // Hands over the spans, unless there are more than trace_spans_per_s.
  void end(RequestSpans spans);

  // Any thread. The exporter reports that the collector has so many spans, or that they are lost.
  void sent(std::size_t count);
  void lost(std::size_t count, const Status& why);

  const Clock& clock() const { return runtime_.clock(); }
  std::uint64_t new_id();  // not 0

 private:
  std::unique_ptr<Trace> begin_if_sampled(std::string_view traceparent);
  bool may_send(std::size_t count);

  Runtime& runtime_;
  Metrics& metrics_;
  Log& log_;
  const Config& config_;
  Take take_;
  // The spans that may be sent now, at `held_at_`; less than 0 after a request with more spans.
  double held_ = 0;
  Clock::Time held_at_{};
  std::atomic<bool> losing_ = false;
};

}  // namespace precis
