// What strangers may do to the port: each gets an answer where one is possible, and the service
// goes on.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "cachesvc/transport/preface.h"
#include "cachesvc/transport/preface_io.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

// A plain TCP client, for bytes that no transport would send.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~Stranger() { ::close(fd_); }
  void send(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the service has had enough
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  void finish() { ::shutdown(fd_, SHUT_WR); }
  // All that the service says until it hangs up.
  std::vector<std::byte> hear() {
    std::vector<std::byte> heard;
    std::byte buffer[4096];
    for (ssize_t n; (n = ::recv(fd_, buffer, sizeof buffer, 0)) > 0;) {
      heard.insert(heard.end(), buffer, buffer + n);
    }
    return heard;
  }
  // The same, frame by frame; what is no frame ends it.
  std::vector<preface::Frame> hear_frames() {
    const auto heard = hear();
    std::vector<preface::Frame> frames;
    for (Bytes rest(heard); rest.size() >= preface::kHeaderBytes;) {
      const auto header = preface::parse_header(rest.first(preface::kHeaderBytes));
      if (!header.ok() || rest.size() - preface::kHeaderBytes < header->body_bytes) break;
      const Bytes body = rest.subspan(preface::kHeaderBytes, header->body_bytes);
      frames.push_back({header->kind, {body.begin(), body.end()}});
      rest = rest.subspan(preface::kHeaderBytes + body.size());
    }
    return frames;
  }
  Status hear_error() {
    const auto frames = hear_frames();
    if (frames.size() != 1) return Status::unavailable("no answer");
    return error_of(frames.front());
  }
  static Status error_of(const preface::Frame& frame) {
    if (frame.kind != preface::Kind::kError) return Status::internal("not an error");
    return preface::decode_error(frame.body);
  }

 private:
  int fd_;
};

void check_still_serving(Pair& pair) {
  auto again = pair.connect_again();
  again.second.send(bytes_of("ping"));
  again.first.inbox().wait_messages(1);
  CHECK(pair.at_server.inbox().closed_count() == 0);
}

std::vector<std::byte> hello_frame(std::size_t payload_bytes) {
  preface::Introduction introduction;
  introduction.link_id = 1;
  introduction.worker_address.assign(200, std::byte{0});
  introduction.payload.resize(payload_bytes);
  return preface::encode_frame(preface::Kind::kHello, preface::encode_introduction(introduction));
}

TEST_CASE("random bytes on the port are answered with corruption", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  const std::uint64_t seed = 5;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Stranger stranger(pair.address);
    stranger.send(random_bytes(random, preface::kHeaderBytes + random() % 100'000));
    CHECK(stranger.hear_error().code() == StatusCode::kCorruption);
  }
  check_still_serving(pair);
}

TEST_CASE("another preface version is told which one is spoken here", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  auto frame = hello_frame(10);
  frame[8] = std::byte{preface::kVersion + 1};
  Stranger stranger(pair.address);
  stranger.send(frame);
  const Status status = stranger.hear_error();
  CHECK(status.code() == StatusCode::kVersionMismatch);
  CHECK_THAT(status.message(),
             Catch::Contains("version " + std::to_string(preface::kVersion + 1)) &&
                 Catch::Contains("speaks " + std::to_string(preface::kVersion)));
  check_still_serving(pair);
}

TEST_CASE("an oversize preface or greeting is refused with its limit", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  const std::size_t size = GENERATE(limits::kHelloBytesMax + 1, 10 * preface::kBodyBytesMax);
  Stranger stranger(pair.address);
  stranger.send(hello_frame(size));
  const Status status = stranger.hear_error();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Catch::Contains("exceeds the limit"));
  check_still_serving(pair);
}

TEST_CASE("a preface with flipped bits never reaches UCX", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  auto frame = hello_frame(10);
  frame[preface::kHeaderBytes + 60] ^= std::byte{4};
  Stranger stranger(pair.address);
  stranger.send(frame);
  CHECK(stranger.hear_error().code() == StatusCode::kCorruption);
  check_still_serving(pair);
}

TEST_CASE("a preface cut anywhere is dropped", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  const auto frame = hello_frame(10);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, preface::kHeaderBytes, frame.size() - 1}) {
    Stranger stranger(pair.address);
    stranger.send(Bytes(frame).first(size));
    stranger.finish();
    CHECK_FALSE(stranger.hear_error().ok());
  }
  check_still_serving(pair);
}

TEST_CASE("a frame out of turn is refused", "[transport]") {
  Pair pair(Wire::kTcpMessages);
  Stranger stranger(pair.address);
  stranger.send(preface::encode_frame(preface::Kind::kReady, {}));
  CHECK(stranger.hear_error().code() == StatusCode::kInvalidArgument);
  check_still_serving(pair);
}

TEST_CASE("a silent peer is told that it is too late", "[transport]") {
  Pair pair(Wire::kTcpMessages, std::chrono::seconds(1));
  Stranger stranger(pair.address);
  CHECK(stranger.hear_error().code() == StatusCode::kTimedOut);
  check_still_serving(pair);
}

TEST_CASE("who is welcome and never ready is told that it is too late", "[transport]") {
  Pair pair(Wire::kTcpMessages, std::chrono::seconds(1));
  Stranger stranger(pair.address);
  stranger.send(hello_frame(10));
  const auto frames = stranger.hear_frames();
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].kind == preface::Kind::kWelcome);
  CHECK(Stranger::error_of(frames[1]).code() == StatusCode::kTimedOut);
  check_still_serving(pair);
}

TEST_CASE("who is welcome and says anything but ready is told so, who goes is forgotten",
          "[transport]") {
  Pair pair(Wire::kTcpMessages);
  {
    Stranger stranger(pair.address);
    stranger.send(hello_frame(10));
    stranger.send(hello_frame(10));
    const auto frames = stranger.hear_frames();
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].kind == preface::Kind::kWelcome);
    CHECK(Stranger::error_of(frames[1]).code() == StatusCode::kInvalidArgument);
  }
  Stranger(pair.address).send(hello_frame(10));
  check_still_serving(pair);
}

TEST_CASE("a server that never answers times the client out", "[transport]") {
  Party client(Wire::kTcpMessages);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  CHECK(connect(client, address, {}, 50).status().code() == StatusCode::kTimedOut);
  ::close(listener);
}

TEST_CASE("who is turned away is told of once, who just goes is not", "[transport]") {
  std::vector<std::string> told;
  Party server(Wire::kTcpMessages);
  const std::string address = listen(
      server, Wire::kTcpMessages,
      {.greet =
           [](Bytes, const std::string&) {
             return Transport::Greeting{{}, false};
           },
       .accepted = [](std::unique_ptr<Connection>, Bytes) {},
       .turned_away = [&](const std::string& peer,
                          const Status& why) { told.push_back(peer + " " + why.to_string()); }});
  {
    Stranger stranger(address);
    stranger.finish();
    CHECK_FALSE(stranger.hear_error().ok());
  }
  Stranger stranger(address);
  stranger.send(std::vector<std::byte>(preface::kHeaderBytes, std::byte{'x'}));
  CHECK(stranger.hear_error().code() == StatusCode::kCorruption);
  const auto all = server.thread.on_loop([&] { return told; });
  REQUIRE(all.size() == 1);
  CHECK_THAT(all[0], Catch::Contains("127.0.0.1:") && Catch::Contains("corruption"));
}

TEST_CASE("an address that is none is invalid", "[transport]") {
  Party client(Wire::kTcpMessages);
  for (const char* address :
       {"", "here", ":7470", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:0", "[::1]:0"}) {
    CAPTURE(address);
    CHECK(connect(client, address).status().code() == StatusCode::kInvalidArgument);
  }
  CHECK_THAT(connect(client, "[::1]").status().message(),
             Catch::Contains("'[::1]' is not of the form host:port, such as"));
}

TEST_CASE("a host that nobody knows cannot be reached, and cannot be listened on", "[transport]") {
  Party party(Wire::kTcpMessages);
  const std::string address = "no..host:7470";  // for which no network is asked
  CHECK(connect(party, address).status().code() == StatusCode::kUnavailable);
  party.thread.on_loop([&] {
    const auto listener = preface_listen(party.thread.loop, address, [](auto) {});
    CHECK(listener.status().code() == StatusCode::kInvalidArgument);
  });
}

TEST_CASE("an idle connection costs no processor", "[transport]") {
  const Wire wire = GENERATE(Wire::kHostCopy, Wire::kTcpMessages, Wire::kTcpStream);
  Pair pair(wire);
  pair.at_client.send(bytes_of("ping"));
  pair.at_server.inbox().wait_messages(1);
  // Longer than any spinning; a loop that spins goes round a million times meanwhile.
  std::unique_ptr<EventLoop::Timer> timer;
  LoopThread clock;
  const auto wait = [&](std::chrono::milliseconds time) {
    std::promise<void> over;
    clock.on_loop([&] { timer = clock.loop.after(time, [&] { over.set_value(); }); });
    get(over.get_future());
    clock.on_loop([&] { timer.reset(); });
  };
  wait(std::chrono::milliseconds(100));
  const std::uint64_t before = pair.server.thread.loop.rounds() + pair.client.thread.loop.rounds();
  wait(std::chrono::milliseconds(300));
  const std::uint64_t after = pair.server.thread.loop.rounds() + pair.client.thread.loop.rounds();
  CHECK(after - before < 100);
}

}  // namespace
}  // namespace precis::test
