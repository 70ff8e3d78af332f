// Who checks what of a get: the thread for it, and who waits.
#include "client/src/get_state.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "cachesvc/base/executor.h"
#include "cachesvc/transport/loopback_transport.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

TEST_CASE("who waits for a whole get checks what the verifying thread does not come to",
          "[client]") {
  ModelSpec model = small_model(Dtype::kF32);
  model.head_dim = 256;  // a layer is more than is checked as it comes
  const Serving serving = one_segment(model, 2400, 2400);
  EventLoop loop;
  const auto transport = make_loopback_transport(loop);
  BufferPool buffers(*transport);
  Executor verifier("test-verify", 1);
  // It has something else to do, until the test says so.
  std::promise<void> let_go;
  verifier.post([held = let_go.get_future().share()] { held.wait(); });

  const GetPlan plan = plan_get(match_of(model, serving.segments), Budget::all()).value();
  auto buffer = buffers.allocate(plan.capacity_bytes).value();
  const MutableBytes memory = buffer->bytes();
  const auto state = std::make_shared<GetState>(plan, std::move(buffer), verifier);
  auto waited = std::async(std::launch::async, [&] { return state->wait(); });
  std::uint64_t offset = 0;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    ServedBytes served = serve_layer(model, serving.segments, serving.entries, l);
    served.message.offset = offset;
    REQUIRE(served.bytes.size() > GetState::kInlineBytesMax);
    std::ranges::copy(served.bytes, memory.begin() + static_cast<std::ptrdiff_t>(offset));
    offset += served.bytes.size();
    state->on_layer(std::move(served.message));
  }
  state->on_reply(msg::ReplyBody(msg::GetDone{}));

  while (!state->settled(model.num_layers - 2)) std::this_thread::yield();
  CHECK_FALSE(state->over());  // the last one is the thread's
  let_go.set_value();
  CHECK(waited.get().ok());
  CHECK(state->counts().total() == 2400);
}

}  // namespace
