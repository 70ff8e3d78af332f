// Requests, replies and deadlines, against a server that misbehaves.
#include <catch2/catch.hpp>
#include <future>

#include "client/src/channel.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

void answer_nothing(FakeServer&, const msg::Request&) {}

TEST_CASE("connect says why it was refused", "[client]") {
  FakeServer server(answer_nothing);
  SECTION("another protocol version") {
    server.refusal = Status::version("this precisd speaks protocol 1, you speak 9");
  }
  SECTION("credentials that do not suffice") {
    server.refusal = Status::denied("tenant 'x' is unknown");
  }
  const auto client = server.connect();
  REQUIRE_FALSE(client.ok());
  INFO(client.status().to_string());
  CHECK(client.status().code() == server.refusal.code());
  CHECK(client.status().message().find(server.refusal.message()) != std::string::npos);
  CHECK(client.status().message().find("loopback:fake") != std::string::npos);
}

TEST_CASE("a name longer than its limit is refused before it is sent", "[client]") {
  FakeServer server(answer_nothing);
  ConnectOptions options;
  std::string& name = GENERATE(true, false) ? options.tenant : options.client_name;
  name = std::string(limits::kNameBytesMax, 't');
  CHECK(server.connect(options).ok());
  name += 't';
  CHECK(server.connect(options).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("replies find their requests in any order", "[client]") {
  std::vector<msg::Request> waiting;
  FakeServer server([&](FakeServer& self, msg::Request request) {
    waiting.push_back(std::move(request));
    if (waiting.size() < 8) return;
    // The last request is answered first, each with the name it asked for.
    for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
      msg::SessionRow row;
      row.name = std::get<msg::ShowSession>(it->body).name;
      self.reply(it->id, row);
    }
  });
  const auto client = server.connect().value();
  std::vector<std::future<Result<msg::SessionRow>>> asked;
  for (int i = 0; i < 8; ++i) {
    asked.push_back(std::async(std::launch::async,
                               [&, i] { return client->session("chat-" + std::to_string(i)); }));
  }
  for (int i = 0; i < 8; ++i) {
    const auto row = asked[i].get();
    REQUIRE(row.ok());
    CHECK(row->name == "chat-" + std::to_string(i));
  }
}

TEST_CASE("a reply to no request is ignored", "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    self.reply(request.id + 1000, msg::Done{});
    self.send(msg::LayerServed{request.id + 1001, 0, 0, {}, {}});
    self.reply(request.id, msg::Models{});
  });
  const auto client = server.connect().value();
  CHECK(client->models().ok());
  CHECK(client->models().ok());
}

TEST_CASE("a layer served to a request that is no get is ignored", "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    self.send(msg::LayerServed{request.id, 0, 0, {1}, {{}}});
    self.reply(request.id, msg::Models{});
  });
  CHECK(server.connect().value()->models().ok());
}

TEST_CASE("a reply of another kind than asked for is an error of the call alone", "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::ListModels>(request.body)) {
      self.reply(request.id, msg::Removed{});
    } else {
      self.reply(request.id, msg::Sessions{});
    }
  });
  const auto client = server.connect().value();
  CHECK(client->models().status().code() == StatusCode::kInternal);
  CHECK(client->sessions().ok());
}

TEST_CASE("the server's refusal reaches the caller as it was said", "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    self.refuse(request.id, Status::not_found("session 'x' is not there"));
  });
  const auto client = server.connect().value();
  CHECK(client->session("x").status() == Status::not_found("session 'x' is not there"));
  CHECK(client->remove_session("x").code() == StatusCode::kNotFound);
}

TEST_CASE("what is under way when the connection closes is unavailable, and what follows",
          "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::ListSessions>(request.body)) self.drop();
  });
  const auto client = server.connect().value();
  auto models = std::async(std::launch::async, [&] { return client->models().status(); });
  const Status sessions = client->sessions().status();
  INFO(sessions.to_string());
  CHECK(sessions.code() == StatusCode::kUnavailable);
  CHECK(models.get().code() == StatusCode::kUnavailable);
  CHECK(client->status().status().code() == StatusCode::kUnavailable);
}

TEST_CASE("when the two sides no longer understand each other the connection ends", "[client]") {
  const bool server_understands = GENERATE(true, false);
  FakeServer server([&](FakeServer& self, const msg::Request&) {
    if (server_understands) {
      self.send_raw(std::vector<std::byte>(64, std::byte{0xff}));
    } else {
      self.refuse(0, Status::invalid("request: kind is 99"));
    }
  });
  const auto client = server.connect().value();
  const Status status = client->models().status();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(client->models().status().code() == StatusCode::kUnavailable);
}

TEST_CASE("a request without an answer times out, and its late reply harms nobody", "[client]") {
  std::uint64_t unanswered = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::ListModels>(request.body)) {
      unanswered = request.id;
      return;
    }
    self.reply(unanswered, msg::Models{});
    self.reply(request.id, msg::Sessions{});
  });
  ConnectOptions options;
  options.timeout_ms = 30;
  const auto client = server.connect(options).value();
  CHECK(client->models().status().code() == StatusCode::kTimedOut);
  CHECK(client->sessions().ok());
}

TEST_CASE("a get waits past its timeout while the service shows life", "[client]") {
  std::uint64_t get = 0;
  int probes = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::Get>(request.body)) get = request.id;
    if (std::holds_alternative<msg::Ping>(request.body)) {
      self.reply(request.id, msg::Done{});
      // Probes are half a timeout apart, so four of them exceed one timeout.
      if (++probes == 4) self.refuse(get, Status::not_found("the segment has gone meanwhile"));
    }
  });
  server.answer_small = false;
  ConnectOptions options;
  options.timeout_ms = 60;
  const auto client = server.connect(options).value();
  std::mt19937 random(1);
  const ModelSpec model = small_model();
  const auto prefix =
      client->get(match_of(model, {random_segment(random, model, 0, 10, 20)})).value();
  CHECK(prefix.wait().code() == StatusCode::kNotFound);
}

TEST_CASE("a check and a trim wait past their timeout while the service shows life", "[client]") {
  const bool check = GENERATE(true, false);
  std::uint64_t asked = 0;
  int probes = 0;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    if (!std::holds_alternative<msg::Ping>(request.body)) {
      asked = request.id;
      return;
    }
    self.reply(request.id, msg::Done{});
    if (++probes < 4) return;  // as above
    if (check) return self.reply(asked, msg::Checked{});
    self.reply(asked, msg::Trimmed{});
  });
  server.answer_small = false;
  ConnectOptions options;
  options.timeout_ms = 60;
  const auto client = server.connect(options).value();
  const Status status = check ? client->check_segment(SegmentId{}).status()
                              : client->trim_segment(SegmentId{}, Budget::entries(1)).status();
  INFO(status.to_string());
  CHECK(status.ok());
}

TEST_CASE("requests past the limit of a connection are rejected", "[client]") {
  FakeServer server(answer_nothing);
  const auto client = server.connect().value();
  std::mt19937 random(1);
  const ModelSpec model = small_model();
  const LookupMatch match = match_of(model, {random_segment(random, model, 0, 10, 20)});
  std::vector<Prefix> prefixes;
  for (std::uint32_t i = 0; i < Channel::kCallsMax; ++i) {
    prefixes.push_back(client->get(match).value());
  }
  CHECK(client->models().status().code() == StatusCode::kRejected);
  prefixes.clear();
}

}  // namespace
