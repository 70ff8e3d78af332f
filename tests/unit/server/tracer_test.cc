#include "cachesvc/server/tracer.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace precis {
namespace {

using std::chrono::milliseconds;

// A clock that only the tests advance, and successive numbers in place of random ones.
class FakeRuntime final : public Runtime, public Clock {
 public:
  const Clock& clock() const override { return *this; }
  std::unique_ptr<EventLoop> make_loop() override { return nullptr; }
  std::unique_ptr<Executor> make_executor(std::string, unsigned) override { return nullptr; }
  std::uint64_t random() override { return next_random++; }
  std::uint64_t unix_ms() const override { return 1'700'000'000'000 + now_ns / 1'000'000; }
  std::uint64_t monotonic_ns() const override { return now_ns; }

  std::uint64_t next_random = 1, now_ns = 5'000'000'000;
};

struct Fixture {
  Fixture() {
    tracer.on_spans([this](RequestSpans spans) {
      if (!has_room) return false;
      got.push_back(std::move(spans));
      return true;
    });
  }

  FakeRuntime runtime;
  Metrics metrics;
  Log log{Log::Level::kOff};
  Config config;
  Tracer tracer{runtime, metrics, log, config};
  bool has_room = true;
  std::vector<RequestSpans> got;
};

const std::string kSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const std::string kNotSampled = kSampled.substr(0, 53) + "00";

}  // namespace

TEST_CASE("without an exporter nothing is traced or counted", "[unit][server]") {
  Fixture f;
  f.config.trace_sample = 1;
  Tracer off(f.runtime, f.metrics, f.log, f.config);
  CHECK(off.begin(kSampled) == nullptr);
  CHECK(off.begin("bad") == nullptr);
  CHECK(f.metrics.bad_traceparents.load() == 0);
  CHECK(f.runtime.next_random == 1);
}

TEST_CASE("a caller's flag decides, and without one chance does", "[unit][server]") {
  Fixture f;
  CHECK(f.tracer.begin(kSampled));
  CHECK_FALSE(f.tracer.begin(kNotSampled));
  CHECK_FALSE(f.tracer.begin(""));
  CHECK_FALSE(f.tracer.begin("bad"));
  CHECK(f.metrics.bad_traceparents.load() == 1);
  f.config.trace_sample = 0.25;  // as after a reload
  f.runtime.next_random = std::uint64_t{1} << 61;
  CHECK(f.tracer.begin(""));
  CHECK(f.tracer.begin("bad"));
  CHECK(f.metrics.bad_traceparents.load() == 2);
  CHECK_FALSE(f.tracer.begin(kNotSampled));
  f.runtime.next_random = std::uint64_t{3} << 61;
  CHECK_FALSE(f.tracer.begin(""));
}

TEST_CASE("stages lie within their request, in times since 1970", "[unit][server]") {
  Fixture f;
  const auto trace = f.tracer.begin(kSampled);
  const Clock::Time began = f.runtime.now();
  f.runtime.now_ns += 10'000'000;
  const Clock::Time later = f.runtime.now();
  trace->stage("before", began - milliseconds(9), began - milliseconds(1));  // another writer's
  trace->stage("early", began - milliseconds(1), later);
  trace->stage("late", later, later + milliseconds(5));
  trace->end("precis.put", {"red", "m", "", "tcp"}, StatusCode::kCanceled, {{"tokens", 7}});
  REQUIRE(f.got.size() == 1);
  const RequestSpans& spans = f.got[0];
  CHECK(spans.context == parse_traceparent(kSampled));
  const std::uint64_t begin_ns = 1'700'000'005'000'000'000, end_ns = begin_ns + 10'000'000;
  CHECK(spans.request.begin_unix_ns == begin_ns);
  CHECK(spans.request.end_unix_ns == end_ns);
  REQUIRE(spans.stages.size() == 2);
  CHECK(std::string(spans.stages[0].name) == "early");
  CHECK(spans.stages[0].begin_unix_ns == begin_ns);
  CHECK(spans.stages[1].begin_unix_ns == end_ns);
  CHECK(spans.stages[1].end_unix_ns == end_ns);
  CHECK(spans.request.id != spans.stages[0].id);
  CHECK(spans.stages[0].id != spans.stages[1].id);
}

TEST_CASE("a request without a caller's span begins a trace of its own", "[unit][server]") {
  Fixture f;
  f.config.trace_sample = 1;
  f.tracer.begin("")->end("precis.get", {}, StatusCode::kOk, {});
  REQUIRE(f.got.size() == 1);
  CHECK(f.got[0].context.span == 0);
  CHECK((f.got[0].context.trace_high | f.got[0].context.trace_low) != 0);
}

TEST_CASE("spans past the limit of a second are dropped and counted", "[unit][server]") {
  Fixture f;
  f.config.trace_spans_per_s = 3;
  const auto request = [&] {  // of two spans
    const auto trace = f.tracer.begin(kSampled);
    trace->stage("wait", trace->began(), trace->began());
    trace->end("precis.get", {}, StatusCode::kOk, {});
    return f.got.size();
  };
  CHECK(request() == 1);
  CHECK(request() == 2);  // one span more than the limit, which the next second lacks
  CHECK(request() == 2);
  CHECK(f.metrics.spans_dropped.load() == 2);
  f.runtime.now_ns += 200'000'000;
  CHECK(request() == 2);
  f.runtime.now_ns += 200'000'000;
  CHECK(request() == 3);
  f.runtime.now_ns += 60'000'000'000;  // saves no more than the spans of one second
  request();
  CHECK(request() == 5);
  CHECK(request() == 5);
}

TEST_CASE("spans for which the exporter has no room are counted", "[unit][server]") {
  Fixture f;
  f.has_room = false;
  f.tracer.begin(kSampled)->end("precis.get", {}, StatusCode::kOk, {});
  CHECK(f.metrics.spans_dropped.load() == 1);
  f.tracer.sent(5);
  f.tracer.lost(7, Status::unavailable("down"));
  CHECK(f.metrics.spans.load() == 5);
  CHECK(f.metrics.spans_dropped.load() == 8);
}

}  // namespace precis
