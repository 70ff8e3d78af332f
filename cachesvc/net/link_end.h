// One end of an admitted connection: its messages, in order with the bulk bytes that were sent
// before them, until one side ends it. What moves bulk bytes is the subclass's. Used on the loop's
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

class LinkEnd : public virtual Messages {
 public:
  // `patience`: as FrameChannel::close(), when this end closes.
  LinkEnd(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
          std::chrono::milliseconds patience)
      : loop_(loop), channel_(std::move(channel)), patience_(patience) {}
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  void start(Handlers handlers) override;
  void send(std::vector<std::byte> message) override;
  // This side's own end: no handler is called any more. A subclass closes when it is destroyed.
  void close() override;
  // The link broke, or its transport goes: the handlers hear why.
  void end(const Status& why);
  // Whatever is to go with it.
  void keep(std::shared_ptr<void> kept) { kept_ = std::move(kept); }

 protected:
  // A frame that is no message; not OK ends the link.
  virtual Status on_rdma_turn(Bytes body) = 0;
  // Ends what moves bulk bytes; may come twice.
  virtual void stop_bulk(const Status& why) = 0;
  // Bulk frames with data that this end has sent: they go before the next message.
  virtual std::uint64_t bulk_frames_sent() const { return 0; }
  // The peer's next message, which follows so many such frames of its own.
  virtual void on_message(std::uint64_t after_bulk, std::vector<std::byte> body) = 0;
  // Hands one out, after which this may be gone: false where it is, or over.
  bool deliver(std::vector<std::byte> body);
  // To be called by any thread where the bulk socket ends, also after this is gone.
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
  const std::chrono::milliseconds patience_;
  Handlers handlers_;
  bool is_over_ = false;
  std::unique_ptr<EventLoop::Timer> bulk_ended_;  // until the control socket ends as well
  std::shared_ptr<void> kept_;
  const std::shared_ptr<LinkEnd*> alive_ =
      std::make_shared<LinkEnd*>(this);  // for what may come late
};

// The open links of one transport, by numbers, which it ends when it goes. Used on the loop's
// thread.
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
  // Null where it is gone.
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
