// Control frames (frames.h) on one socket, both ways. Used on the loop's thread. Owners share it
// with callbacks under way; after close() it calls nothing back.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/socket.h"
#include "precis/frames.h"

namespace precis {

class ControlStream;

// Counts the bytes of frames that are arriving, over all streams of a process, before memory is
// taken for them. Used on the loop's thread.
class InboxMeter {
 public:
  explicit InboxMeter(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  // Where the bound is passed, the stream that holds most ends (kRejected): false if that is
  // `stream` itself.
  bool take(ControlStream& stream, std::size_t size_bytes);
  void give_back(ControlStream& stream);

 private:
  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::unordered_map<ControlStream*, std::size_t> held_;
};

class ControlStream : public std::enable_shared_from_this<ControlStream> {
 public:
  struct Handlers {
    std::function<void(const FrameHeader&, std::vector<std::byte>)> on_frame;
    std::function<void(Status)> on_end;  // once: the peer is gone, or broke the frames
  };
  // A frame's body has at most `body_bytes_max`. `meter` outlives it; null: nothing is counted.
  ControlStream(EventLoop& loop, std::unique_ptr<Socket> socket, std::size_t body_bytes_max,
                InboxMeter* meter = nullptr);
  ~ControlStream();
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  // Reads from now on. start() again sets other handlers.
  void start(Handlers handlers);
  void set_body_bytes_max(std::size_t bytes) { body_bytes_max_ = bytes; }
  void set_meter(InboxMeter* meter) { meter_ = meter; }
  // From now on what arrives is read and handed out in turns, each of which `turns` is asked for: it
  // calls what it is given, once, on the loop. At first the loop's own order decides.
  using Turns = std::function<void(std::function<void()>)>;
  void take_turns(Turns turns) { turns_ = std::move(turns); }
  // Stops reading until the next start(). Only while bodies are at most limits::kWelcomeBytesMax:
  // then nothing is read past a frame.
  void pause();
  // Frames of one turn of the loop leave together, at its end. More than
  // limits::kSendQueueBytesMax unsent ends the stream with kRejected.
  void send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk = 0);
  std::size_t unsent_bytes() const { return unsent_bytes_; }
  // Sends what is queued, as far as the kernel takes it within `patience`, and closes.
  void close(std::chrono::milliseconds patience = {});
  // The socket, for other use, once what is queued was sent as far as the kernel takes it; nothing
  // of it was read that start() has not handed out.
  std::unique_ptr<Socket> release();
  // Ends the stream: on_end hears `why`, on a turn of its own.
  void end(Status why);
  const Socket& socket() const { return *socket_; }

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

  EventLoop& loop_;
  std::unique_ptr<Socket> socket_;
  std::size_t body_bytes_max_;
  InboxMeter* meter_;
  std::unique_ptr<EventLoop::SocketWatch> watch_;
  std::shared_ptr<Handlers> handlers_;
  Turns turns_;
  bool turn_asked_ = false;
  bool reading_ = false;  // handlers want frames
  bool ended_ = false;

  std::array<std::byte, FrameHeader::kBytes> header_bytes_{};
  std::size_t header_got_ = 0;
  FrameHeader header_;
  std::vector<std::byte> body_;
  std::size_t body_got_ = 0;
  std::size_t frames_left_ = 0;    // of this turn
  std::vector<std::byte> unread_;  // came with the last frame of a turn

  std::deque<Outgoing> outgoing_;
  std::size_t front_sent_ = 0;  // of the first
  std::size_t unsent_bytes_ = 0;
  bool flush_posted_ = false;
};

}  // namespace precis
