// A channel of frames between two loops of one process.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/frame_channel.h"
#include "precis/limits.h"

namespace precis {

// A loop that may be destroyed before the objects that post to it. The loop's transport detaches
// it.
class LoopHandle {
 public:
  explicit LoopHandle(EventLoop& loop) : loop_(&loop) {}
  void post(std::function<void()> fn) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) loop_->post(std::move(fn));
  }
  void detach() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  EventLoop* loop_;
};

// One side's queue of frames. The other side only posts to this side's loop, and updates
// waiting_bytes_.
class LoopbackChannel final : public FrameChannel,
                              public std::enable_shared_from_this<LoopbackChannel> {
 public:
  explicit LoopbackChannel(std::shared_ptr<LoopHandle> loop) : loop_(std::move(loop)) {}
  ~LoopbackChannel() override { close({}); }

  static void join(const std::shared_ptr<LoopbackChannel>& a,
                   const std::shared_ptr<LoopbackChannel>& b) {
    a->peer_ = b;
    b->peer_ = a;
  }

  void start(Handlers handlers) override {
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
    loop_->post([self = shared_from_this()] { self->deliver(); });
  }

  void send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk) override {
    const auto peer = ended_.ok() ? peer_.lock() : nullptr;
    if (!peer) return;  // the peer is gone, and has posted its end
    if ((peer->waiting_bytes_ += frame_bytes(body)) > limits::kSendQueueBytesMax) {
      const auto why =
          Status::rejected("the peer does not read: more than " +
                           std::to_string(limits::kSendQueueBytesMax) + " B wait for it");
      return loop_->post([self = shared_from_this(), why] { self->end(why); });
    }
    const FrameHeader header{kind, static_cast<std::uint32_t>(body.size()), after_bulk};
    peer->loop_->post([peer, header, body = std::move(body)]() mutable {
      peer->inbox_.push_back({header, std::move(body)});
      peer->deliver();
    });
  }

  std::size_t unsent_bytes() const override { return 0; }

  void close(std::chrono::milliseconds) override {
    handlers_ = nullptr;
    if (std::exchange(closed_, true)) return;
    ended_ = Status::canceled("the connection was closed on this side");
    if (const auto peer = peer_.lock()) {
      peer->loop_->post(
          [peer] { peer->end(Status::unavailable("the peer closed the connection")); });
    }
  }

 private:
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> body;
  };

  // The counted bytes of a frame. With its header, because a frame without a body waits too.
  static std::size_t frame_bytes(const std::vector<std::byte>& body) {
    return FrameHeader::kBytes + body.size();
  }

  void end(const Status& why) {
    if (!ended_.ok()) return;
    ended_ = why;
    deliver();
  }

  // Delivers the received frames and the end. Always called in its own turn, because a handler may
  // end the link.
  void deliver() {
    while (handlers_ && !inbox_.empty()) {
      Frame frame = std::move(inbox_.front());
      inbox_.pop_front();
      waiting_bytes_ -= frame_bytes(frame.body);
      const auto handlers = handlers_;
      handlers->on_frame(frame.header, std::move(frame.body));
    }
    if (ended_.ok()) return;
    if (const auto handlers = std::exchange(handlers_, nullptr)) handlers->on_end(ended_);
  }

  const std::shared_ptr<LoopHandle> loop_;
  std::weak_ptr<LoopbackChannel> peer_;
  std::shared_ptr<Handlers> handlers_;
  std::deque<Frame> inbox_;
  std::atomic<std::size_t> waiting_bytes_{0};  // sent to this side and not yet delivered
  Status ended_;                               // the reason of the end for this side; OK until then
  bool closed_ = false;
};

}  // namespace precis
