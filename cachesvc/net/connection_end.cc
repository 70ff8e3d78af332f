#include "cachesvc/net/connection_end.h"

#include <string>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

// The two sockets of a peer that closes or dies end within this time of each other.
constexpr std::chrono::seconds kEndsApartMax{1};

}  // namespace

void ConnectionEnd::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (is_over_) return;
  channel_->start(
      {.on_frame = [this](const FrameHeader& header,
                          std::vector<std::byte> body) { on_frame(header, std::move(body)); },
       .on_end = [this](const Status& why) { end(why); }});
}

void ConnectionEnd::on_frame(const FrameHeader& header, std::vector<std::byte> body) {
  if (header.kind == FrameKind::kMessage) return on_message(header.after_bulk, std::move(body));
  const Status status =
      header.kind == FrameKind::kRdma
          ? on_rdma_turn(body)
          : Status::invalid("the peer sent a frame of kind " +
                            std::to_string(static_cast<int>(header.kind)) + " after the greeting");
  if (!status.ok()) end(status);
}

bool ConnectionEnd::deliver(std::vector<std::byte> body) {
  if (is_over_) return false;
  const std::weak_ptr<ConnectionEnd*> alive = alive_;
  const auto handler = handlers_.on_message;
  if (handler) handler(std::move(body));
  return !alive.expired() && !is_over_;
}

void ConnectionEnd::send(std::vector<std::byte> message) {
  if (is_over_) return;
  if (message.size() <= limits::kMessageBytesMax) {
    return channel_->send(FrameKind::kMessage, std::move(message), bulk_frames_sent());
  }
  end(Status::invalid("this side's message of " + std::to_string(message.size()) +
                      " B exceeds the limit of " + std::to_string(limits::kMessageBytesMax) +
                      " B"));
}

std::function<void(Status)> ConnectionEnd::bulk_end_handler() {
  return [&loop = loop_, alive = std::weak_ptr<ConnectionEnd*>(alive_)](const Status& why) {
    loop.post([alive, why] {
      if (const auto link = alive.lock()) (*link)->on_bulk_end(why);
    });
  };
}

// The control socket delivers the messages that the peer sent before its end, so this waits a while
// for the end of the control socket.
void ConnectionEnd::on_bulk_end(const Status& why) {
  if (is_over_) return;
  stop_bulk(why);
  bulk_ended_ = loop_.after(kEndsApartMax, [this, why] { end(why); });
}

void ConnectionEnd::close() {
  // Destroyed at the end, because the handlers may hold the last reference to an owner of this
  // object.
  const Handlers unused = std::exchange(handlers_, {});
  shut(Status::canceled("the connection was closed on this side"));
}

void ConnectionEnd::end(const Status& why) {
  if (is_over_) return;
  shut(why);
  loop_.post([alive = std::weak_ptr<ConnectionEnd*>(alive_), why] {
    const auto link = alive.lock();
    if (!link) return;
    const Handlers handlers = std::exchange((*link)->handlers_, {});
    if (handlers.on_closed) handlers.on_closed(why);
  });
}

void ConnectionEnd::shut(const Status& why) {
  if (std::exchange(is_over_, true)) return;
  bulk_ended_.reset();
  stop_bulk(why);
  channel_->close(timeout_);
}

}  // namespace precis
