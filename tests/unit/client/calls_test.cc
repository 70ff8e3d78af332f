// Non-blocking calls: tickets, outcomes in any order, the descriptor, and the ways they end.
#include "precis/calls.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "precis/limits.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Ticket = Calls::Ticket;

constexpr int kPatienceMs = 30'000;

bool readable(const Calls& calls, int timeout_ms) {
  pollfd wanted{calls.descriptor(), POLLIN, 0};
  return ::poll(&wanted, 1, timeout_ms) == 1;
}

// Outcomes by ticket, once there are `count` of them.
std::map<Ticket, Calls::Done> take(Calls& calls, std::size_t count) {
  std::map<Ticket, Calls::Done> taken;
  while (taken.size() < count && readable(calls, kPatienceMs)) {
    for (Calls::Done& done : calls.poll()) {
      const Ticket ticket = done.ticket;
      CHECK(taken.emplace(ticket, std::move(done)).second);
    }
  }
  CHECK(taken.size() == count);
  return taken;
}

// Calls that wait until the gate opens.
class Gate {
 public:
  Calls::Call call() {
    return [this](const std::atomic<bool>&) -> Result<Calls::Value> {
      std::unique_lock lock(mutex_);
      ++inside_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      return Calls::Value();
    };
  }
  void wait_for(int inside) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ >= inside; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool open_ = false;
};

// Answers a lookup with its path's length; refuses a path of 13 tokens, ignores one of 999.
void answer_lookups(FakeServer& self, const msg::Request& request) {
  if (!std::holds_alternative<msg::Lookup>(request.body)) {
    return self.reply(request.id, msg::SegmentInfo{});
  }
  const std::size_t length = std::get<msg::Lookup>(request.body).tokens.size();
  if (length == 13) return self.refuse(request.id, Status::denied("not 13"));
  if (length == 999) return;
  msg::Match match;
  match.matched_tokens = static_cast<std::uint32_t>(length);
  self.reply(request.id, match);
}

std::vector<TokenId> path(std::size_t length) { return std::vector<TokenId>(length, 7); }

TEST_CASE("many calls are submitted at once, and each has its own outcome", "[client]") {
  FakeServer server(answer_lookups);
  const unsigned threads = GENERATE(1u, 4u, 16u);
  const auto calls = Calls::make(server.connect().value(), threads).value();
  const Model model{small_model(), {}, {}};
  std::map<Ticket, std::size_t> lengths;
  for (std::size_t length = 1; length <= 100; ++length) {
    const Ticket ticket = calls->lookup(model, path(length)).value();
    CHECK(ticket != 0);
    CHECK(lengths.emplace(ticket, length).second);
  }
  std::vector<std::vector<TokenId>> paths;
  for (std::size_t length = 101; length <= 150; ++length) paths.push_back(path(length));
  const auto tickets = calls->lookup_many(model, std::move(paths)).value();
  REQUIRE(tickets.size() == 50);
  for (std::size_t i = 0; i < tickets.size(); ++i) lengths.emplace(tickets[i], 101 + i);
  for (const auto& [ticket, done] : take(*calls, lengths.size())) {
    CAPTURE(lengths.at(ticket));
    if (lengths.at(ticket) == 13) {
      CHECK(done.status.code() == StatusCode::kPermissionDenied);
      CHECK(std::holds_alternative<std::monostate>(done.result));
    } else {
      REQUIRE(done.status.ok());
      CHECK(std::get<LookupMatch>(done.result).matched_tokens == lengths.at(ticket));
    }
  }
  CHECK_FALSE(readable(*calls, 0));
  CHECK(calls->poll().empty());
}

TEST_CASE("a get, its waits and a commit bring what the calls themselves bring", "[client]") {
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server([&serving](FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::Get>(request.body)) return serving(self, request);
    if (!std::holds_alternative<msg::BeginPut>(request.body)) return answer_lookups(self, request);
    msg::PutBegun begun;
    begun.put = 1;
    begun.end = 5;
    begun.already_stored = true;
    self.reply(request.id, begun);
  });
  const auto client = server.connect().value();
  const auto calls = Calls::make(client, 2).value();
  const LookupMatch match = match_of(serving.model, serving.segments);
  const Ticket whole = calls->get(match).value();
  const Ticket too_much = calls->get(match, Budget::entries(401)).value();
  auto done = take(*calls, 2);
  CHECK(done.at(too_much).status.code() == StatusCode::kInvalidArgument);
  REQUIRE(done.at(whole).status.ok());
  const auto prefix = std::get<std::shared_ptr<Prefix>>(done.at(whole).result);
  CHECK(prefix->plan().total() == 600);

  const auto other = std::make_shared<Prefix>(client->get(match).value());
  const auto put =
      std::make_shared<Put>(client->begin_put(Model{serving.model, {}, {}}, path(5)).value());
  const Ticket all = calls->wait(other).value(), one = calls->wait_layer(other, 1).value();
  const Ticket none = calls->wait_layer(other, 9).value();
  const Ticket committed = calls->commit(put).value();
  done = take(*calls, 4);
  CHECK(done.at(all).status.ok());
  CHECK(done.at(one).status.ok());
  CHECK(done.at(none).status.code() == StatusCode::kInvalidArgument);
  CHECK(std::holds_alternative<msg::SegmentInfo>(done.at(committed).result));
}

TEST_CASE("the descriptor is readable while an outcome waits", "[client]") {
  FakeServer server(answer_lookups);
  const auto calls = Calls::make(server.connect().value(), 2).value();
  Gate gate;
  CHECK_FALSE(readable(*calls, 0));
  REQUIRE(calls->submit(gate.call()).ok());
  REQUIRE(calls->submit(gate.call()).ok());
  gate.wait_for(2);
  CHECK_FALSE(readable(*calls, 0));
  gate.open();
  REQUIRE(readable(*calls, kPatienceMs));
  CHECK(readable(*calls, 0));  // until it is taken
  take(*calls, 2);
  CHECK_FALSE(readable(*calls, 0));
}

TEST_CASE("outcomes that are given back come first at the next poll", "[client]") {
  FakeServer server(answer_lookups);
  const auto calls = Calls::make(server.connect().value(), 1).value();
  const auto none = [](const auto&) { return Result<Calls::Value>(Calls::Value()); };
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < limits::kCallsMax; ++i) {
    tickets.push_back(calls->submit(none).value());
  }
  std::vector<Calls::Done> taken;
  while (taken.size() < tickets.size()) {
    REQUIRE(readable(*calls, kPatienceMs));
    for (Calls::Done& done : calls->poll()) taken.push_back(std::move(done));
  }
  tickets.push_back(calls->submit(none).value());
  REQUIRE(readable(*calls, kPatienceMs));
  calls->give_back(std::move(taken));  // now there are more than the limit
  CHECK(calls->submit(none).status().code() == StatusCode::kRejected);
  CHECK(calls->cancel(tickets.front()));
  tickets.erase(tickets.begin());
  std::vector<Ticket> again;
  for (const Calls::Done& done : calls->poll()) again.push_back(done.ticket);
  CHECK(again == tickets);
  CHECK_FALSE(readable(*calls, 0));
  calls->give_back({});
  CHECK_FALSE(readable(*calls, 0));
}

TEST_CASE("outcomes come in the order in which calls end", "[client]") {
  FakeServer server(answer_lookups);
  const auto calls = Calls::make(server.connect().value(), 2).value();
  Gate gate;
  const Ticket slow = calls->submit(gate.call()).value();
  gate.wait_for(1);
  const Ticket fast = calls->lookup(Model{small_model(), {}, {}}, path(3)).value();
  CHECK(take(*calls, 1).contains(fast));
  gate.open();
  CHECK(take(*calls, 1).contains(slow));
}

TEST_CASE("a call that is canceled is forgotten, or says when it is over", "[client]") {
  FakeServer server(answer_lookups);
  const auto calls = Calls::make(server.connect().value(), 1).value();
  Gate gate, other;
  const Ticket running = calls->submit(gate.call()).value();
  const Ticket queued = calls->submit(other.call()).value();
  gate.wait_for(1);
  CHECK(calls->cancel(queued));
  CHECK_FALSE(calls->cancel(queued));
  CHECK_FALSE(calls->cancel(running));
  CHECK_FALSE(calls->cancel(12345));
  gate.open();
  CHECK(take(*calls, 1).at(running).status.code() == StatusCode::kCanceled);
  const Ticket over = calls->submit(gate.call()).value();
  REQUIRE(readable(*calls, kPatienceMs));
  CHECK(calls->cancel(over));
  CHECK_FALSE(readable(*calls, 0));
  CHECK(calls->poll().empty());
}

TEST_CASE("the end forgets calls that wait and then waits for those that run", "[client]") {
  FakeServer server(answer_lookups);
  auto calls = Calls::make(server.connect().value(), 1).value();
  std::atomic<bool> ran{false}, over{false};
  Gate gate;
  const auto running = [&, slow = gate.call()](const std::atomic<bool>& canceled) {
    auto outcome = slow(canceled);
    over = true;
    return outcome;
  };
  REQUIRE(calls->submit(running).ok());
  // The running call continues once the call behind it was dropped.
  std::shared_ptr<void> opens(nullptr, [&gate](void*) { gate.open(); });
  auto queued = [&ran, held = std::move(opens)](const auto&) -> Result<Calls::Value> {
    ran = true;
    return Calls::Value();
  };
  REQUIRE(calls->submit(std::move(queued)).ok());
  gate.wait_for(1);
  calls.reset();
  CHECK(over);
  CHECK_FALSE(ran);
}

TEST_CASE("calls past the limit are refused at once and whole", "[client]") {
  FakeServer server(answer_lookups);
  const auto calls = Calls::make(server.connect().value(), 1).value();
  const Model model{small_model(), {}, {}};
  Gate gate;
  const Ticket first = calls->submit(gate.call()).value();
  for (std::size_t i = 1; i < limits::kCallsMax; ++i) REQUIRE(calls->submit(gate.call()).ok());
  CHECK(calls->submit(gate.call()).status().code() == StatusCode::kRejected);
  CHECK(calls->cancel(first + 1));
  CHECK(calls->lookup_many(model, {path(1), path(2)}).status().code() == StatusCode::kRejected);
  CHECK(calls->lookup(model, path(1)).ok());
  gate.open();
  take(*calls, limits::kCallsMax);
  CHECK(calls->lookup(model, path(1)).ok());
}

TEST_CASE("calls of a service that is gone are submitted at once and end with errors", "[client]") {
  FakeServer server(answer_lookups);
  ConnectOptions options;
  options.retry = GENERATE(false, true);
  options.timeout_ms = 200;
  options.deadline_ms = 300;
  const auto client = server.connect(options).value();
  const auto calls = Calls::make(client, 4).value();
  const bool silent = GENERATE(false, true);
  if (!silent) {
    server.refusal = Status::unavailable("it is gone");
    server.on_loop([&] { server.drop(); });
  }
  std::set<Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    tickets.insert(calls->lookup(Model{small_model(), {}, {}}, path(silent ? 999 : 5)).value());
  }
  for (const auto& [ticket, done] : take(*calls, tickets.size())) {
    CHECK(tickets.contains(ticket));
    CHECK_FALSE(done.status.ok());
  }
}

TEST_CASE("calls are made with a client and a few threads", "[client]") {
  FakeServer server(answer_lookups);
  const auto client = server.connect().value();
  CHECK(Calls::make(nullptr, 1).status().code() == StatusCode::kInvalidArgument);
  CHECK(Calls::make(client, 0).status().code() == StatusCode::kInvalidArgument);
  CHECK(Calls::make(client, limits::kCallThreadsMax + 1).status().code() ==
        StatusCode::kInvalidArgument);
  int started = 0;
  {
    const auto calls = Calls::make(client, 1, [&] { ++started; }).value();
  }
  CHECK(started == 1);
}

}  // namespace
