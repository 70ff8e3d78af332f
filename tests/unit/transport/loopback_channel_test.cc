// The limit of the frames that wait for a loopback's reader.
#include "cachesvc/embed/loopback_channel.h"

#include <catch2/catch.hpp>
#include <optional>

#include "cachesvc/base/asio_loop.h"

namespace precis {
namespace {

void run_posted(AsioLoop& loop) {
  loop.stop();
  loop.run();
}

}  // namespace

TEST_CASE("frames without a body count as unread bytes too", "[transport]") {
  AsioLoop here, there;
  const auto sender = std::make_shared<LoopbackChannel>(std::make_shared<LoopHandle>(here));
  const auto reader = std::make_shared<LoopbackChannel>(std::make_shared<LoopHandle>(there));
  LoopbackChannel::join(sender, reader);
  std::optional<Status> ended;
  std::size_t frames = 0;
  sender->start({.on_frame = nullptr, .on_end = [&](const Status& why) { ended = why; }});
  reader->start({.on_frame = [&](const FrameHeader&, std::vector<std::byte>) { ++frames; },
                 .on_end = nullptr});
  const auto send = [&](std::size_t body_bytes) {
    sender->send(FrameKind::kMessage, std::vector<std::byte>(body_bytes), 0);
    run_posted(here);
  };
  send(limits::kSendQueueBytesMax - FrameHeader::kBytes);
  CHECK_FALSE(ended);
  SECTION("the reader reads") {
    run_posted(there);
    CHECK(frames == 1);
    send(0);
    CHECK_FALSE(ended);
  }
  SECTION("the reader does not read") {
    send(0);
    REQUIRE(ended);
    CHECK(ended->code() == StatusCode::kRejected);
  }
}

}  // namespace precis
