// One end of an admitted connection. It delivers messages in order with the bulk bytes that were
// sent before them, until one side ends it. Subclasses move the bulk bytes. Used on the loop's
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/frame_channel.h"
#include "cachesvc/net/messages.h"

namespace precis {

class ConnectionEnd : public virtual Messages {
 public:
  // `timeout`: as FrameChannel::close(), when this end closes.
  ConnectionEnd(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
                std::chrono::milliseconds timeout)
      : loop_(loop), channel_(std::move(channel)), timeout_(timeout) {}
  ConnectionEnd(const ConnectionEnd&) = delete;
  ConnectionEnd& operator=(const ConnectionEnd&) = delete;

  void start(Handlers handlers) override;
  void send(std::vector<std::byte> message) override;
  // Closes from this side: no handler is called any more. A subclass calls it in its destructor.
  void close() override;
  // Ends the link, because it broke or its transport is being destroyed. on_closed receives `why`.
  void end(const Status& why);
  // Keeps an object that must be destroyed with the link.
  void keep(std::shared_ptr<void> kept) { kept_ = std::move(kept); }

 protected:
  // Handles a frame of kind kRdma. A Status that is not OK ends the link.
  virtual Status on_rdma_turn(Bytes body) = 0;
  // Stops the movement of bulk bytes. It may be called twice.
  virtual void stop_bulk(const Status& why) = 0;
  // The number of bulk frames with data that this end has sent. They precede the next message.
  virtual std::uint64_t bulk_frames_sent() const { return 0; }
  // The peer's next message. It follows `after_bulk` bulk frames of the peer.
  virtual void on_message(std::uint64_t after_bulk, std::vector<std::byte> body) = 0;
  // Delivers one message. The handler may destroy this object: returns false if it did, or if the
  // link is over.
  bool deliver(std::vector<std::byte> body);
  // Returns a function that any thread calls when the bulk socket ends, also after this object is
  // destroyed.
  std::function<void(Status)> bulk_end_handler();

  EventLoop& loop() const { return loop_; }
  FrameChannel& channel() const { return *channel_; }
  bool is_over() const { return is_over_; }

 private:
  void on_frame(const FrameHeader& header, std::vector<std::byte> body);
  void on_bulk_end(const Status& why);
  void shut(const Status& why);

  EventLoop& loop_;
  const std::shared_ptr<FrameChannel> channel_;
  const std::chrono::milliseconds timeout_;
  Handlers handlers_;
  bool is_over_ = false;
  std::unique_ptr<EventLoop::Timer> bulk_ended_;  // runs until the control socket ends too
  std::shared_ptr<void> kept_;
  // Expires with this object, for callbacks that may come late.
  const std::shared_ptr<ConnectionEnd*> alive_ = std::make_shared<ConnectionEnd*>(this);
};

// The open links of one transport, by number. The transport ends them when it is destroyed. Used on
// the loop's thread.
template <typename Kind>
class Links {
 public:
  void end_all() {
    for (const auto& [number, link] : Map(*open_)) {
      link->end(Status::canceled("the transport was closed on this side"));
    }
  }
  void add(std::uint64_t number, Kind& link) {
    open_->emplace(number, &link);
    link.keep(
        std::shared_ptr<void>(nullptr, [open = open_, number](void*) { open->erase(number); }));
  }
  void add(Kind& link) { add(++last_number_, link); }
  // Returns null if the link is gone.
  Kind* find(std::uint64_t number) const {
    const auto found = open_->find(number);
    return found == open_->end() ? nullptr : found->second;
  }

 private:
  using Map = std::unordered_map<std::uint64_t, Kind*>;
  std::uint64_t last_number_ = 0;
  const std::shared_ptr<Map> open_ = std::make_shared<Map>();  // shared with the links
};

}  // namespace precis
