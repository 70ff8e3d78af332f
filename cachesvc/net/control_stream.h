// Control frames (frames.h) on one socket, in both directions.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/frame_channel.h"
#include "cachesvc/net/socket.h"

namespace precis {

class ControlStream;

// Counts the bytes of frames that are being received, over all streams of a process, before their
// memory is allocated. Used on the loop's thread.
class InboxMeter {
 public:
  explicit InboxMeter(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  // If the total passes the limit, the stream with the most bytes ends with kRejected. Returns
  // false if that stream is `stream`.
  bool take(ControlStream& stream, std::size_t size_bytes);
  void give_back(ControlStream& stream);

 private:
  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::unordered_map<ControlStream*, std::size_t> held_;
};

class ControlStream final : public FrameChannel,
                            public std::enable_shared_from_this<ControlStream> {
 public:
  // For an admitted connection. `meter` must exist until the stream ends. If it is null, nothing is
  // counted.
  ControlStream(EventLoop& loop, std::unique_ptr<Socket> socket, InboxMeter* meter = nullptr);
  ~ControlStream() override;
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  void start(Handlers handlers) override;
  void take_turns(Turns turns) override { turns_ = std::move(turns); }
  // Frames sent during one turn of the loop leave together at its end.
  void send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk) override;
  std::size_t unsent_bytes() const override { return unsent_bytes_; }
  void close(std::chrono::milliseconds timeout) override;
  // Ends the stream. on_end receives `why` in a later turn of the loop.
  void end(Status why);

 private:
  friend class InboxMeter;
  struct Outgoing {
    std::array<std::byte, FrameHeader::kBytes> header;
    std::vector<std::byte> body;
  };
  void on_readable();
  void ask_for_turn();
  void receive();
  Status take(Bytes bytes);
  Status begin_body();
  bool grow_body(std::size_t arriving);
  void hand_out();
  void flush();
  void leave_meter();

  EventLoop& loop_;
  std::unique_ptr<Socket> socket_;
  InboxMeter* meter_;
  std::unique_ptr<EventLoop::SocketWatch> watch_;
  std::shared_ptr<Handlers> handlers_;
  Turns turns_;
  bool turn_asked_ = false;
  bool ended_ = false;

  std::array<std::byte, FrameHeader::kBytes> header_bytes_{};
  std::size_t header_got_ = 0;
  FrameHeader header_;
  std::vector<std::byte> body_;
  std::size_t body_got_ = 0;
  std::size_t frames_left_ = 0;  // frames that this turn may still deliver
  std::chrono::steady_clock::time_point turn_ends_{};
  std::vector<std::byte> unread_;  // bytes after the last frame of a turn

  std::deque<Outgoing> outgoing_;
  std::size_t front_sent_ = 0;  // bytes sent of the first frame
  std::size_t unsent_bytes_ = 0;
  bool flush_posted_ = false;
};

}  // namespace precis
