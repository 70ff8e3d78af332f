// The threads that check a get: the verifying thread, and threads that wait.
#include "client/src/get_state.h"
#include "cachesvc/base/asio_loop.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/embed/loopback.h"
#include "client/src/interrupt.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

// A get with served layers, and a verifying thread that is blocked by another task.
struct Served {
  Served() {
    model.head_dim = 256;  // a layer is more than the loop checks inline
    serving = one_segment(model, kTokens, kTokens);
    verifier.post([held = let_go.get_future().share()] { held.wait(); });
    const GetPlan plan = plan_get(match_of(model, serving.segments), Budget::all()).value();
    auto buffer = buffers.allocate(plan.capacity_bytes).value();
    memory = buffer->bytes();
    state = std::make_shared<GetState>(plan, std::move(buffer), verifier, clock);
  }
  // Ends the threads that still wait because a check failed.
  ~Served() {
    state->on_reply(Status::timed_out("the test has ended"));
    if (!is_free) let_go.set_value();
  }
  void serve(std::uint32_t layer) {
    ServedBytes served = serve_layer(model, serving.segments, serving.entries, layer);
    served.message.offset = offset;
    REQUIRE(served.bytes.size() > GetState::kInlineBytesMax);
    std::ranges::copy(served.bytes, memory.begin() + static_cast<std::ptrdiff_t>(offset));
    offset += served.bytes.size();
    state->on_layer(std::move(served.message));
  }
  void free_verifier() {
    is_free = true;
    let_go.set_value();
  }

  static constexpr std::uint32_t kTokens = 2400;
  ModelSpec model = small_model(Dtype::kF32);
  Serving serving;
  SystemClock clock;
  AsioLoop loop;
  std::unique_ptr<ClientTransport> transport = make_loopback_client(loop, make_loopback_net());
  BufferPool buffers{*transport};
  std::promise<void> let_go;
  bool is_free = false;
  MutableBytes memory;
  std::uint64_t offset = 0;
  std::shared_ptr<GetState> state;
  ThreadExecutor verifier{"test-verify", 1};
};

constexpr std::chrono::seconds kHangs{60};

const auto kNeverDriven = [](const auto&) { FAIL("nothing more is to be brought"); };

// Global because on_wait() is not undone: all later waits of the process ask this flag.
std::atomic<bool> interrupted = false;

TEST_CASE("who waits for a whole get checks what the verifying thread does not come to",
          "[client]") {
  std::future<Status> waited;  // ends after the state
  Served f;
  waited = std::async(std::launch::async, [state = f.state] { return state->wait(); });
  const std::uint32_t last = f.model.num_layers - 1;
  for (std::uint32_t l = 0; l <= last; ++l) f.serve(l);
  f.state->on_reply(msg::ReplyBody(msg::GetDone{}));

  const auto end = std::chrono::steady_clock::now() + kHangs;
  while (!f.state->settled(last - 1) && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  for (std::uint32_t l = 0; l < last; ++l) CHECK(f.state->settled(l));
  // The verifying thread checks the last layer, however long that takes.
  CHECK(waited.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  f.free_verifier();
  CHECK(waited.get().ok());
  CHECK(f.state->counts().total() == Served::kTokens);
}

TEST_CASE("who waits for a layer brings it and checks it, and no other thread is woken",
          "[client]") {
  Served f;
  while (f.verifier.queued() > 0) std::this_thread::yield();  // it is blocked by its first task
  int drives = 0;
  const auto bring = [&](const auto& done) {
    ++drives;
    CHECK(!done());
    f.serve(0);
    CHECK(done());
  };
  CHECK(f.state->wait_layer(0, bring).ok());
  CHECK(f.state->wait_layer(0, bring).ok());  // it is there
  CHECK(drives == 1);
  CHECK(f.state->settled(0));
  CHECK(f.verifier.queued() == 0);
}

TEST_CASE("who waits for layers that came checks them itself, in any order", "[client]") {
  Served f;
  f.serve(0);
  f.serve(1);
  CHECK(f.state->wait_layer(1, kNeverDriven).ok());
  CHECK(f.state->wait_layer(0, kNeverDriven).ok());
}

// A thread that drove the loop would wait in the loop for an event that no message brings.
TEST_CASE("who waits for a layer that another thread checks does not wait in the loop",
          "[client]") {
  bool amid = false;  // during the check
  for (int tries = 0; tries < 1000 && !amid; ++tries) {
    Served f;
    f.free_verifier();
    f.serve(0);
    while (f.verifier.queued() > 0) std::this_thread::yield();
    amid = !f.state->settled(0);
    CHECK(f.state->wait_layer(0, kNeverDriven).ok());
  }
  CHECK(amid);
}

TEST_CASE("who checks one layer after the other heeds an interruption between them", "[client]") {
  on_wait([] { return interrupted.load(); });
  bool between = false;
  // A waiting thread asks ten times a second. On a slow machine, it may not ask while layers of the
  // get are left to check, so the test tries several gets.
  for (int tries = 0; tries < 100 && !between; ++tries) {
    Served f;
    for (std::uint32_t l = 0; l < f.model.num_layers; ++l) f.serve(l);
    const Interrupt before(f.clock);
    while (!before.due()) std::this_thread::yield();
    interrupted = true;
    const Status status = f.state->wait();
    interrupted = false;
    CHECK(status.code() == StatusCode::kCanceled);
    between = f.state->bytes() < f.offset / 2;
  }
  CHECK(between);
}

TEST_CASE("of a get that is over nothing more is checked by who waits", "[client]") {
  Served f;
  for (std::uint32_t l = 0; l < f.model.num_layers; ++l) f.serve(l);
  f.state->on_reply(Status::timed_out("too late"));
  CHECK(f.state->wait().code() == StatusCode::kTimedOut);
  CHECK(f.state->bytes() == 0);
}

}  // namespace
