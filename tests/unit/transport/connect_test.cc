// Connecting, step by step, where the other side or the time does not play along.
#include <catch2/catch.hpp>
#include <random>

#include "cachesvc/transport/preface_io.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("attempts cut short at any moment do not stand in the way of the next", "[transport]") {
  const Wire wire = GENERATE(Wire::kHostCopy, Wire::kTcpMessages, Wire::kTcpStream);
  CAPTURE(wire_name(wire));
  Party server(wire), client(wire);
  std::vector<End> at_server;
  const std::string address =
      listen(server, wire,
             {.greet =
                  [](Bytes, const std::string&) {
                    return Transport::Greeting{{}, true};
                  },
              .accepted = [&](std::unique_ptr<Connection> connection,
                              Bytes) { at_server.emplace_back(server, std::move(connection)); }});
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    // The server stands still for longer than the client waits, at some moment of it.
    const auto still = std::chrono::microseconds(random() % 3000);
    server.thread.loop.post([still] { std::this_thread::sleep_for(still); });
    auto cut = connect(client, address, {}, 1);
    if (!cut.ok()) CHECK(cut.status().code() == StatusCode::kTimedOut);
    if (cut.ok()) End(client, std::move(cut->connection)).drop();
    auto connected = connect(client, address);
    REQUIRE(connected.status().to_string() == "ok");
    End at_client(client, std::move(connected->connection));
    at_client.start();
    at_client.send(bytes_of("hello"));
    server.thread.on_loop([] {});
    End& last = at_server.back();
    last.start();
    CHECK(text_of(last.inbox().wait_messages(1)[0]) == "hello");
  }
}

// Welcomes everybody as the client itself, so that its UCX always reaches somebody, then says one
// thing more.
class Impostor {
 public:
  Impostor(Party& party, preface::Kind kind, std::vector<std::byte> body)
      : party_(party), kind_(kind), body_(std::move(body)) {
    party.thread.on_loop([this] {
      listener_ = preface_listen(party_.thread.loop, "127.0.0.1:0",
                                 [this](std::unique_ptr<PrefaceSocket> socket) {
                                   socket_ = std::move(socket);
                                   socket_->read([this](const Result<preface::Frame>& frame) {
                                     answer(frame.value());
                                   });
                                 })
                      .value();
    });
  }
  ~Impostor() {
    party_.thread.on_loop([this] {
      socket_.reset();
      listener_.reset();
    });
  }
  std::string address() const { return listener_->address(); }

 private:
  void answer(const preface::Frame& hello) {
    socket_->write(preface::Kind::kWelcome, hello.body);
    socket_->read([this](const Result<preface::Frame>& frame) {
      if (frame.ok() && kind_ != preface::Kind::kReady) socket_->write(kind_, body_);
      if (kind_ == preface::Kind::kReady) socket_.reset();  // nothing more to say
    });
  }
  Party& party_;
  const preface::Kind kind_;
  const std::vector<std::byte> body_;
  std::unique_ptr<PrefaceListener> listener_;
  std::unique_ptr<PrefaceSocket> socket_;
};

TEST_CASE("what is no start after a welcome ends the attempt, with its reason", "[transport]") {
  using preface::Kind;
  struct Case {
    Kind kind;
    std::vector<std::byte> body;
    StatusCode code;
  };
  const std::vector<Case> cases = {
      {Kind::kError, preface::encode_error(Status::rejected("full")), StatusCode::kRejected},
      {Kind::kWelcome, {}, StatusCode::kInvalidArgument},
      {Kind::kStart, bytes_of("1"), StatusCode::kInvalidArgument},
      {Kind::kStart, {std::byte{1}, std::byte{1}}, StatusCode::kInvalidArgument},
      {Kind::kReady, {}, StatusCode::kUnavailable},
  };
  Pair pair(Wire::kTcpMessages);
  Party other(Wire::kTcpMessages);
  for (const Case& one : cases) {
    CAPTURE(static_cast<int>(one.kind));
    const Impostor impostor(other, one.kind, one.body);
    const Status status = connect(pair.client, impostor.address()).status();
    CAPTURE(status.to_string());
    CHECK(status.code() == one.code);
  }
  auto again = pair.connect_again();
  again.second.send(bytes_of("still here"));
  CHECK(text_of(again.first.inbox().wait_messages(1)[0]) == "still here");
}

}  // namespace
}  // namespace precis::test
