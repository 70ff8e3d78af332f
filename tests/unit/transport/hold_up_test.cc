// Limits that keep one peer from delaying the others.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/net/control_stream.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/transport/acceptor.h"
#include "cachesvc/transport/server_connection.h"

namespace precis {
namespace {

constexpr unsigned kFrames = 1000;

std::vector<std::byte> numbered_frame(unsigned number) {
  const auto header = encode_frame_header({FrameKind::kMessage, sizeof number, 0});
  std::vector<std::byte> frame(header.begin(), header.end());
  const auto* const bytes = reinterpret_cast<const std::byte*>(&number);
  frame.insert(frame.end(), bytes, bytes + sizeof number);
  return frame;
}

// A stream whose peer has sent kFrames frames at once, and the numbers of the received frames.
struct Flooded {
  AsioLoop loop;
  std::shared_ptr<ControlStream> stream;
  Descriptor peer;
  std::vector<unsigned> got;

  Flooded() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    peer = Descriptor(ends[1]);
    stream = std::make_shared<ControlStream>(loop, std::make_unique<Socket>(Descriptor(ends[0])));
    std::vector<std::byte> all;
    for (unsigned i = 0; i < kFrames; ++i) {
      const auto frame = numbered_frame(i);
      all.insert(all.end(), frame.begin(), frame.end());
    }
    REQUIRE(::write(peer.get(), all.data(), all.size()) == static_cast<ssize_t>(all.size()));
  }
  ~Flooded() { stream->close({}); }

  void start() {
    stream->start({.on_frame =
                       [this](const FrameHeader&, const std::vector<std::byte>& body) {
                         unsigned number = 0;
                         std::memcpy(&number, body.data(), sizeof number);
                         got.push_back(number);
                       },
                   .on_end = [this](const Status&) { loop.stop(); }});
  }
  void check_all_came_in_order() const {
    REQUIRE(got.size() == kFrames);
    for (unsigned i = 0; i < kFrames; ++i) CHECK(got[i] == i);
  }
};

TEST_CASE("a peer that sends much at once is heard in turns, between which others have theirs",
          "[unit][transport]") {
  Flooded flooded;
  std::size_t most = 0, turns = 0;
  flooded.stream->take_turns([&](std::function<void()> turn) {
    flooded.loop.post([&, turn = std::move(turn)] {
      const std::size_t before = flooded.got.size();
      turn();
      ++turns;
      most = std::max(most, flooded.got.size() - before);
      if (flooded.got.size() == kFrames) flooded.loop.stop();
    });
  });
  flooded.start();
  flooded.loop.run();
  flooded.check_all_came_in_order();
  CHECK(most <= 8);
  CHECK(turns >= kFrames / 8 - 1);  // the first eight came in start()
}

TEST_CASE("frames that arrived before the peer closed are handed out before its end",
          "[unit][transport]") {
  Flooded flooded;
  flooded.peer = Descriptor();
  flooded.start();
  flooded.loop.run();
  flooded.check_all_came_in_order();
}

TEST_CASE("a client's message that waits for bulk bytes ends its connection", "[unit][transport]") {
  AsioLoop loop;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Descriptor peer(ends[1]);
  ServerConnection link(
      loop, std::make_shared<ControlStream>(loop, std::make_unique<Socket>(Descriptor(ends[0]))),
      {"a test", "unix", {}});
  // An empty message, which costs its sender no bytes except the header.
  const auto frame = encode_frame_header({FrameKind::kMessage, 0, 1});
  REQUIRE(::write(peer.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  Status ended;
  link.start({.on_message = [](const std::vector<std::byte>&) { FAIL("it was handed out"); },
              .on_closed =
                  [&](Status why) {
                    ended = std::move(why);
                    loop.stop();
                  }});
  const auto patience = loop.after(std::chrono::seconds(10), [&] { loop.stop(); });
  loop.run();
  CHECK(ended.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a peer that reads no more, but does not close, ends its bulk stream",
          "[unit][transport]") {
  AsioLoop loop;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Descriptor peer(ends[1]);
  REQUIRE(::shutdown(peer.get(), SHUT_RD) == 0);
  const auto stream =
      std::make_shared<DataStream>(loop, std::make_unique<Socket>(Descriptor(ends[0])));
  bool ended = false;
  stream->start({.on_frame = [](const BulkHeader&, Descriptor) -> Status { return {}; },
                 .place = [](const BulkHeader&, std::size_t) -> DataStream::Place { return {}; },
                 .on_data = [](const BulkHeader&) {},
                 .on_end =
                     [&](const Status&) {
                       ended = true;
                       loop.stop();
                     }});
  stream->send({.header = {BulkKind::kShared, 0, 1, 0, 0}, .data = {}});
  const auto patience = loop.after(std::chrono::seconds(10), [&] { loop.stop(); });
  loop.run();
  CHECK(ended);
  stream->close();
}

TEST_CASE("a descriptor goes with its frame though its owner has closed it by then",
          "[unit][transport]") {
  AsioLoop loop;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Socket peer{Descriptor(ends[1])};
  const auto stream =
      std::make_shared<DataStream>(loop, std::make_unique<Socket>(Descriptor(ends[0])));
  {
    const Descriptor file(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    loop.post([&stream, copy = std::make_shared<Descriptor>(::dup(file.get()))] {
      stream->send({.header = {BulkKind::kShare, 0, 1, 0, 0}, .data = {}, .pass = copy->get()});
    });  // sent at the end of the turn, after `copy` is destroyed
  }
  const auto patience = loop.after(std::chrono::milliseconds(50), [&] { loop.stop(); });
  loop.run();
  std::array<std::byte, BulkHeader::kBytes> header;
  Descriptor passed;
  CHECK(peer.read(header, &passed).bytes == header.size());
  REQUIRE(passed);
  std::byte read{1};
  CHECK(::read(passed.get(), &read, 1) == 1);
  CHECK(read == std::byte{0});
  stream->close();
}

TEST_CASE("who is not admitted passes no descriptors over the Unix socket", "[unit][transport]") {
  std::string folder = (std::filesystem::temp_directory_path() / "precis-socket-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  AsioLoop loop;
  {
    const auto listening = listen_unix(loop, folder + "/socket", [](Descriptor) {}).value();
    Socket stranger(Descriptor(::socket(AF_UNIX, SOCK_STREAM, 0)));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    listening->address().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(stranger.descriptor(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof address) == 0);
    const std::byte one{1};
    const Bytes range(&one, 1);
    const auto passed = stranger.write({&range, 1}, STDIN_FILENO);
    int known = 0;
    socklen_t size = sizeof known;
    if (::getsockopt(stranger.descriptor(), SOL_SOCKET, 83, &known, &size) != 0) {
      WARN("this kernel can't forbid it");  // before Linux 6.16
    } else {
      CHECK(passed.state == Socket::Io::State::kEnded);
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace precis
