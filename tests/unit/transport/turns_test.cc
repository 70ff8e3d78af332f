// What one peer sends is handed out in turns (control_stream.h).
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/net/control_stream.h"
#include "cachesvc/net/tls.h"
#include "precis/limits.h"

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

// A stream whose peer has sent kFrames at once, and the turns that it asks for.
struct Flooded {
  EventLoop loop;
  std::shared_ptr<ControlStream> stream;
  Descriptor peer;
  std::vector<unsigned> got;

  Flooded() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    peer = Descriptor(ends[1]);
    stream = std::make_shared<ControlStream>(
        loop, std::make_unique<Socket>(Descriptor(ends[0])), limits::kMessageBytesMax);
    std::vector<std::byte> all;
    for (unsigned i = 0; i < kFrames; ++i) {
      const auto frame = numbered_frame(i);
      all.insert(all.end(), frame.begin(), frame.end());
    }
    REQUIRE(::write(peer.get(), all.data(), all.size()) == static_cast<ssize_t>(all.size()));
  }
  ~Flooded() { stream->close(); }

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
  CHECK(turns >= kFrames / 8 - 1);  // the first eight came as it started
}

TEST_CASE("frames that arrived before the peer closed are handed out before its end",
          "[unit][transport]") {
  Flooded flooded;
  flooded.peer = Descriptor();
  flooded.start();
  flooded.loop.run();
  flooded.check_all_came_in_order();
}

}  // namespace
}  // namespace precis
