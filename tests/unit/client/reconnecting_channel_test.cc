// Calls that are retried, over connections that are lost, and deadlines.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "client/src/nodes.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

MachineRuntime machine;

template <typename T>
bool is(const msg::Request& request) {
  return std::holds_alternative<T>(request.body);
}

TEST_CASE("a call that the service is too busy for comes again when it was told to", "[client]") {
  int refusals = 3;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (refusals-- > 0) return self.refuse(request.id, Status::rejected("max_requests", 1));
    self.reply(request.id, msg::Models{});
  });
  const auto client = server.connect(ConnectOptions{}).value();
  CHECK(client->models().ok());
}

TEST_CASE("who is told to come back connects when it was told to, within the timeout", "[client]") {
  FakeServer server([](FakeServer&, const msg::Request&) {});
  int dials = 0;
  Status refusal = Status::denied("wrong tokens came", 1);
  const Nodes::Dial dial = [&, real = server.dial()](
                               const std::string&,
                               std::uint32_t timeout_ms) -> Result<std::shared_ptr<Channel>> {
    if (++dials <= 3) return refusal;
    return real(timeout_ms);
  };
  CHECK(Nodes::open(dial, {"here"},
                    {.timeout_ms = 1000, .deadline_ms = 0, .retry = true, .runtime = &machine})
            .ok());
  CHECK(dials == 4);
  dials = 0;
  const auto once = Nodes::open(
      dial, {"here"}, {.timeout_ms = 1000, .deadline_ms = 0, .retry = false, .runtime = &machine});
  CHECK(once.status() == refusal);
  refusal = Status::denied("wrong tokens came", 60'000);  // past the timeout
  const auto late = Nodes::open(
      dial, {"here"}, {.timeout_ms = 1000, .deadline_ms = 0, .retry = true, .runtime = &machine});
  CHECK(late.status() == refusal);
  CHECK(dials == 2);
}

TEST_CASE("nobody comes again before the service told them to", "[client]") {
  const Status busy = Status::rejected("max_requests", 100);
  for (int i = 0; i < 32; ++i) {
    Retry retry({.timeout_ms = 100, .deadline_ms = 0, .retry = true, .runtime = &machine},
                "models");
    CHECK(retry.again(busy) == busy);  // the time to retry is after the timeout
  }
}

TEST_CASE("a deadline too near to try again is not said to have passed", "[client]") {
  constexpr std::uint32_t kShorterThanAnyWait = 5;
  Retry retry(
      {.timeout_ms = 100, .deadline_ms = kShorterThanAnyWait, .retry = true, .runtime = &machine},
      "models");
  const Status status = retry.again(Status::unavailable("no service"));
  CHECK(status.code() == StatusCode::kTimedOut);
  CHECK_THAT(status.message(), Catch::Contains("leaves no time to try the service again") &&
                                   Catch::EndsWith("no service"));
}

TEST_CASE("calls that find the connection lost make another one together", "[client]") {
  constexpr int kCalls = 16;
  FakeServer server([](FakeServer&, const msg::Request&) {});
  std::atomic<int> dials{0}, under_way{0}, calls{0};
  std::atomic<bool> overlap{false};
  const ReconnectingChannel::Dial dial =
      [&, real = server.dial()](std::uint32_t timeout_ms) -> Result<std::shared_ptr<Channel>> {
    if (++dials == 1) return real(timeout_ms);
    if (++under_way > 1) overlap = true;
    while (calls < kCalls) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others wait by then
    --under_way;
    return Status::timed_out("nobody answers");
  };
  const CallOptions options{
      .timeout_ms = 1000, .deadline_ms = 0, .retry = true, .runtime = &machine};
  ReconnectingChannel link(dial);
  const auto channel = link.channel(Retry(options, "models"), 1000).value();
  server.on_loop([&] { server.drop(); });
  while (!channel->lost()) std::this_thread::yield();
  std::array<Status, kCalls> outcomes;
  {
    std::vector<std::jthread> threads;
    for (Status& outcome : outcomes) {
      threads.emplace_back([&] {
        const Retry call(options, "models");
        ++calls;
        outcome = link.channel(call, 1000).status();
      });
    }
  }
  for (const Status& outcome : outcomes) CHECK(outcome == Status::timed_out("nobody answers"));
  CHECK_FALSE(overlap);
  CHECK(dials < 1 + kCalls);
}

TEST_CASE("overload that outlasts the deadline reaches the caller with its hint", "[client]") {
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    self.refuse(request.id, Status::rejected("the service has 7 requests", 3));
  });
  const auto client = server.connect(ConnectOptions{}).value()->with_deadline(30);
  const Status status = client->models().status();
  CHECK(status == Status::rejected("the service has 7 requests", 3));
  CHECK(status.with_context("x").retry_after_ms() == 3);
}

TEST_CASE("what only the caller can change is not tried again", "[client]") {
  int asked = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    ++asked;
    self.refuse(request.id, Status::rejected("64 puts are under way, commit or abort one"));
  });
  const auto client = server.connect(ConnectOptions{}).value();
  CHECK(client->models().status().code() == StatusCode::kRejected);
  CHECK(asked == 1);
}

TEST_CASE("a call that may be done twice survives the loss of its connection, another is told",
          "[client]") {
  int drops = 2;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    const bool unsafe = is<msg::RemoveSession>(request) || is<msg::SetBudget>(request);
    if (unsafe || drops-- > 0) return self.drop();
    self.reply(request.id, msg::Models{});
  });
  const auto client = server.connect(ConnectOptions{}).value();
  CHECK(client->models().ok());
  for (const Status& status :
       {client->remove_session("chat"), client->set_budget(msg::SetBudget{}).status()}) {
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK(status.message().find("outcome is unknown") != std::string::npos);
  }
  CHECK(client->models().ok());
}

TEST_CASE("past its deadline a call says what it waited for", "[client]") {
  FakeServer server([](FakeServer&, const msg::Request&) {});
  const auto client = server.connect(ConnectOptions{}).value();
  SECTION("an answer") {
    const Status status = client->with_deadline(20)->models().status();
    CHECK(status.code() == StatusCode::kTimedOut);
    CHECK_THAT(status.message(), Catch::StartsWith("models: ") && Catch::Contains("the answer of"));
  }
  SECTION("layers of a get") {
    std::mt19937 random(1);
    const ModelSpec model = small_model();
    const LookupMatch match = match_of(model, {random_segment(random, model, 0, 10, 20)});
    const auto prefix = client->with_deadline(20)->get(match).value();
    const Status status = prefix.wait();
    CHECK(status.code() == StatusCode::kTimedOut);
    CHECK_THAT(status.message(), Catch::StartsWith("get: its deadline"));
  }
  SECTION("a service that is gone") {
    server.on_loop([&] {
      server.refusal = Status::unavailable("it is stopping");
      server.drop();
    });
    const Status status = client->with_deadline(50)->models().status();
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::kTimedOut);
    // If the deadline passed during an attempt, the message says that the call waited for a
    // connection.
    CHECK_THAT(status.message(),
               Catch::Contains("its deadline of 50 ms ") && Catch::Contains("the service"));
  }
}

TEST_CASE("a put whose begin nobody waits for any more is given up", "[client]") {
  std::uint64_t begin = 0;
  bool aborted = false;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (is<msg::BeginPut>(request)) begin = request.id;
    if (const auto* abort = std::get_if<msg::AbortPut>(&request.body)) aborted = abort->put == 5;
    if (!is<msg::ListModels>(request)) return;
    msg::PutBegun begun;
    begun.put = 5;
    if (begin != 0) self.reply(std::exchange(begin, 0), begun);
    self.reply(request.id, msg::Models{});
  });
  server.answer_small = false;
  const auto client = server.connect(ConnectOptions{}).value();
  const std::vector<TokenId> tokens(4, 1);
  const Model model{small_model(), {}, {}};
  CHECK(client->with_deadline(20)->begin_put(model, tokens).status().code() ==
        StatusCode::kTimedOut);
  CHECK(client->models().ok());
  CHECK(client->models().ok());  // the abort was sent before this request
  CHECK(aborted);
}

// Pushes the first `num_layers` layers of the get, and ends it after the model's last layer.
void serve(FakeServer& self, const msg::Request& request, const ModelSpec& model,
           const std::vector<StoredSegment>& segments, std::uint32_t num_layers) {
  std::uint64_t offset = 0;
  for (std::uint32_t l = 0; l < num_layers; ++l) {
    ServedBytes served = serve_layer(model, segments, {20}, l);
    served.message.id = request.id;
    served.message.offset = offset;
    const std::size_t size = served.bytes.size();
    const bool last = l + 1 == model.num_layers;
    self.push(std::get<msg::Get>(request.body).destination, offset, std::move(served.bytes),
              [&self, message = served.message, last](const Status&) {
                self.send(message);
                if (last) self.reply(message.id, msg::GetDone{});
              });
    offset += size;
  }
}

TEST_CASE("a get goes on over another connection, and layers that arrived stay", "[client]") {
  std::mt19937 random(1);
  const ModelSpec model = small_model();
  REQUIRE(model.num_layers > 1);
  const std::vector<StoredSegment> segments{random_segment(random, model, 0, 10, 20)};
  int gets = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (!is<msg::Get>(request)) return self.reply(request.id, msg::Models{});
    const bool whole = ++gets == 3;
    if (gets == 2) return self.refuse(request.id, Status::rejected("max_requests", 1));
    serve(self, request, model, segments, whole ? model.num_layers : 1);
  });
  const auto client = server.connect(ConnectOptions{}).value();
  const Prefix prefix = client->get(match_of(model, segments)).value();
  REQUIRE(prefix.wait_layer(0).ok());
  const std::byte* keys = prefix.head(0, 0).keys.data;
  server.on_loop([&] { server.drop(); });
  REQUIRE(prefix.wait().ok());
  CHECK(gets == 3);
  CHECK(prefix.head(0, 0).keys.data == keys);
  std::size_t entries = 0;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    REQUIRE(prefix.wait_layer(l).ok());
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      entries += prefix.head(l, h).positions.size();
    }
  }
  CHECK(entries == 20);
}

TEST_CASE("layers of two puts are not mixed in one get", "[client]") {
  std::mt19937 random(1);
  const ModelSpec model = small_model();
  const std::vector<StoredSegment> before{random_segment(random, model, 0, 10, 20)};
  std::vector<StoredSegment> after{random_segment(random, model, 0, 10, 20)};
  after[0].info.id = before[0].info.id;
  reseal(model, after[0]);
  int gets = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    const bool first = ++gets == 1;
    serve(self, request, model, first ? before : after, first ? 1 : model.num_layers);
  });
  const auto client = server.connect(ConnectOptions{}).value();
  const Prefix prefix = client->get(match_of(model, before)).value();
  const bool handed_out = GENERATE(true, false);
  if (handed_out) REQUIRE(prefix.wait_layer(0).ok());
  for (bool asked = false; !asked;) {
    server.on_loop([&] { asked = gets > 0; });
  }
  server.on_loop([&] { server.drop(); });
  if (!handed_out) {
    CHECK(prefix.wait().ok());
    CHECK(gets == 2);
    return;
  }
  for (const Status& status : {prefix.wait_layer(1), prefix.wait()}) {
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(),
               Catch::EndsWith("put again while it was being read: look the match up again"));
  }
  CHECK(prefix.wait_layer(0).ok());
  CHECK(prefix.head(0, 0).positions.size() == before[0].entries[0][0].size());
}

TEST_CASE("a get that is turned away keeps no buffer for each time", "[client]") {
  constexpr int kRefusals = 5;
  std::mt19937 random(1);
  const ModelSpec model = small_model();
  const std::vector<StoredSegment> segments{random_segment(random, model, 0, 10, 20)};
  int gets = 0;
  std::set<std::uint64_t> buffers;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    buffers.insert(std::get<msg::Get>(request.body).destination.address);
    if (++gets <= kRefusals) return self.refuse(request.id, Status::rejected("max_requests", 1));
    serve(self, request, model, segments, model.num_layers);
  });
  const auto client = server.connect(ConnectOptions{}).value();
  CHECK(client->get(match_of(model, segments)).value().wait().ok());
  CHECK(gets == kRefusals + 1);
  CHECK(buffers.size() <= 2);
}

// A service that is lost at its first push, or at its first commit.
struct LosingPuts {
  bool lose_push = false, lose_second_push = false, lose_commit = false, stored = false;
  int begins = 0, pushes = 0, commits = 0;
  int last_puts = 0;  // pushes of the newest put
  void operator()(FakeServer& self, const msg::Request& request) {
    if (is<msg::BeginPut>(request)) {
      ++begins;
      last_puts = 0;
      msg::PutBegun begun;
      begun.put = static_cast<std::uint64_t>(begins);
      begun.end = 4;
      begun.already_stored = begins > 1 && stored;
      return self.reply(request.id, begun);
    }
    if (is<msg::PushLayer>(request)) {
      if (++pushes == 1 && lose_push) return self.drop();
      if (pushes == 1 && lose_second_push) return;  // the second is answered, then all is lost
      ++last_puts;
      self.reply(request.id, msg::Done{});
      if (pushes == 2 && lose_second_push) self.drop();
      return;
    }
    if (is<msg::CommitPut>(request)) {
      if (++commits == 1 && lose_commit) return self.drop();
      return self.reply(request.id, msg::SegmentInfo{});
    }
    self.reply(request.id, msg::Models{});
  }
};

TEST_CASE("a put goes on over another connection where nothing of it is lost", "[client]") {
  LosingPuts script;
  FakeServer server([&](FakeServer& self, const msg::Request& r) { script(self, r); });
  const auto client = server.connect(ConnectOptions{}).value();
  const ModelSpec spec = small_model();
  const std::vector<TokenId> tokens(4, 1);
  const std::vector<std::byte> rows(std::size_t{spec.num_kv_heads} * 4 * spec.head_dim *
                                    dtype_size_bytes(spec.dtype));
  LayerPush push;
  push.keys = push.values =
      HeadsView::packed(rows.data(), spec.num_kv_heads, 4, spec.head_dim, spec.dtype);
  SECTION("its first push is lost: it is begun and pushed anew") {
    script.lose_push = true;
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    CHECK(put.layer(0, push).ok());
    CHECK(put.commit().ok());
    CHECK(script.begins == 2);
    CHECK(script.pushes == 2);
  }
  SECTION("its first pushes are lost together: it is begun once, and all are pushed anew") {
    script.lose_push = true;
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    for (std::uint32_t l = 0; l < 3; ++l) REQUIRE(put.start_layer(l, push).ok());
    CHECK(put.commit().ok());
    CHECK(script.begins == 2);
    CHECK(script.last_puts == 3);
  }
  SECTION("a push that was answered is lost with one that was not: both are pushed anew") {
    script.lose_second_push = true;
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    for (std::uint32_t l = 0; l < 2; ++l) REQUIRE(put.start_layer(l, push).ok());
    CHECK(put.wait_layers().ok());
    CHECK(script.begins == 2);
    CHECK(script.last_puts == 2);
    CHECK(put.commit().ok());
  }
  SECTION("what was pushed is lost: it says to put again") {
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    REQUIRE(put.layer(0, push).ok());
    server.on_loop([&] { server.drop(); });
    const Status status = put.layer(1, push);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Catch::EndsWith("put again"));
  }
  SECTION("the answer of its commit is lost: the segment is found") {
    script.lose_commit = script.stored = true;
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    REQUIRE(put.layer(0, push).ok());
    CHECK(put.commit().ok());
    CHECK(script.commits == 2);
  }
  SECTION("its commit is lost and nothing is stored: it says to put again") {
    script.lose_commit = true;
    Put put = client->begin_put({spec, {}, {}}, tokens).value();
    REQUIRE(put.layer(0, push).ok());
    const Status status = put.commit().status();
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Catch::EndsWith("put again"));
    // The put begun only to ask is aborted, although the first put still exists.
    std::ptrdiff_t aborts = 0;
    while (aborts == 0) {
      server.on_loop([&] { aborts = std::ranges::count_if(server.seen(), is<msg::AbortPut>); });
    }
    CHECK(script.begins == 2);
  }
}

TEST_CASE("a model's registration and its projections have one deadline", "[client]") {
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (const auto* model = std::get_if<msg::RegisterModel>(&request.body)) {
      msg::ModelRow row;
      row.model = model->model;
      return self.reply(request.id, row);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    self.reply(request.id, msg::Done{});
  });
  const auto client = server.connect(ConnectOptions{}).value();
  const ModelSpec spec = small_model();
  const std::vector<std::byte> weights(std::size_t{spec.num_q_heads} * spec.head_dim * 8 *
                                       dtype_size_bytes(spec.dtype));
  const std::vector<HeadsView> o_proj(
      spec.num_layers,
      HeadsView::packed(weights.data(), spec.num_q_heads, spec.head_dim, 8, spec.dtype));
  const auto deadline = static_cast<std::uint32_t>(40 * (spec.num_layers - 1));
  const Status status = client->with_deadline(deadline)->register_model(spec, o_proj).status();
  CHECK(status.code() == StatusCode::kTimedOut);
  CHECK_THAT(status.message(), Catch::Contains("deadline"));
}

}  // namespace
