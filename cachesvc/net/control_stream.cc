#include "cachesvc/net/control_stream.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

// Bytes to read in one call to the kernel: enough for most messages.
constexpr std::size_t kReadBytes = 64u << 10;
// Limits of one turn of one stream, so that other streams get their turns.
constexpr std::size_t kTurnBytesMax = 512u << 10;
constexpr std::size_t kTurnFramesMax = 8;
constexpr std::chrono::microseconds kTurnTime{50};  // no further frame after this time
constexpr std::size_t kRangesMax = 32;              // per call to the kernel

}  // namespace

bool InboxMeter::take(ControlStream& stream, std::size_t size_bytes) {
  held_[&stream] += size_bytes;
  bytes_ += size_bytes;
  while (bytes_ > bytes_max_) {
    const auto most =
        std::max_element(held_.begin(), held_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    ControlStream* const victim = most->first;
    const std::size_t held = most->second;
    give_back(*victim);
    victim->end(Status::rejected("its incoming messages have " + std::to_string(held) +
                                 " B, the most of all connections, which together exceed " +
                                 std::to_string(bytes_max_) + " B (max_message_bytes)"));
    if (victim == &stream) return false;
  }
  return true;
}

void InboxMeter::give_back(ControlStream& stream) {
  const auto held = held_.find(&stream);
  if (held == held_.end()) return;
  bytes_ -= held->second;
  held_.erase(held);
}

ControlStream::ControlStream(EventLoop& loop, std::unique_ptr<Socket> socket, InboxMeter* meter)
    : loop_(loop), socket_(std::move(socket)), meter_(meter) {}

ControlStream::~ControlStream() { leave_meter(); }

// The meter may be destroyed once the stream has ended.
void ControlStream::leave_meter() {
  if (InboxMeter* const meter = std::exchange(meter_, nullptr)) meter->give_back(*this);
}

void ControlStream::start(Handlers handlers) {
  if (ended_) return;
  handlers_ = std::make_shared<Handlers>(std::move(handlers));
  if (!watch_) {
    watch_ = loop_.watch_socket(
        socket_->descriptor(), [this] { on_readable(); }, [this] { flush(); });
  }
  // TLS may hold bytes that the descriptor does not report as readable.
  loop_.post([self = shared_from_this()] {
    self->flush();
    self->receive();
  });
}

void ControlStream::close(std::chrono::milliseconds timeout) {
  if (socket_ && !ended_) flush();
  const auto deadline = loop_.clock().now() + timeout;
  while (socket_ && !ended_ && !outgoing_.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - loop_.clock().now());
    pollfd wait{socket_->descriptor(), POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) break;
    flush();
  }
  handlers_ = nullptr;
  ended_ = true;
  watch_.reset();
  leave_meter();
  if (socket_) socket_->shut_down();
  socket_.reset();
}

void ControlStream::end(Status why) {
  if (std::exchange(ended_, true)) return;
  watch_.reset();
  leave_meter();
  if (socket_) socket_->shut_down();
  body_ = {};
  outgoing_.clear();
  unsent_bytes_ = 0;
  loop_.post([self = shared_from_this(), why = std::move(why)] {
    const auto handlers = std::exchange(self->handlers_, nullptr);
    if (handlers && handlers->on_end) handlers->on_end(why);
  });
}

void ControlStream::on_readable() { turns_ ? ask_for_turn() : receive(); }

void ControlStream::ask_for_turn() {
  if (std::exchange(turn_asked_, true)) return;
  if (watch_) watch_->hold(true);
  auto turn = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->turn_asked_ = false;
    self->receive();
    if (self->watch_ && !self->turn_asked_) self->watch_->hold(false);
  };
  turns_ ? turns_(std::move(turn)) : loop_.post(std::move(turn));
}

void ControlStream::receive() {
  const auto self = shared_from_this();  // a handler may release the owner's reference
  thread_local std::array<std::byte, kReadBytes> scratch;
  if (turn_asked_) return;
  frames_left_ = kTurnFramesMax;
  turn_ends_ = loop_.clock().now() + kTurnTime;
  if (!unread_.empty() && watch_) {
    if (const Status status = take(std::exchange(unread_, {})); !status.ok()) return end(status);
    if (!unread_.empty()) return ask_for_turn();
  }
  for (std::size_t budget = kTurnBytesMax; budget > 0 && watch_ && !ended_;) {
    // A large body is read directly into its own memory. Everything else goes through the scratch
    // buffer, several frames at a time.
    const std::size_t body_left = header_got_ == FrameHeader::kBytes ? body_.size() - body_got_ : 0;
    MutableBytes into(scratch);
    const bool direct = body_left >= kReadBytes;
    if (direct) into = MutableBytes(body_).subspan(body_got_);
    const Socket::Io io = socket_->read(into);
    if (io.state == Socket::Io::State::kWait) return;
    if (io.state == Socket::Io::State::kEnded) return end(io.why);
    budget -= std::min(budget, io.bytes);
    Status status;
    if (direct) {
      body_got_ += io.bytes;
      if (body_got_ == header_.size_bytes) {
        hand_out();
      } else if (body_got_ == body_.size() && !grow_body(body_got_)) {
        return;
      }
    } else {
      status = take(into.first(io.bytes));
    }
    if (!status.ok()) return end(status);
    if (!socket_) return;
    if (frames_left_ == 0) break;
    if (io.bytes < into.size() && !socket_->has_buffered()) return;  // nothing more has arrived
  }
  if (watch_ && !ended_) ask_for_turn();
}

// Splits bytes into frames.
Status ControlStream::take(Bytes bytes) {
  while (!bytes.empty() && !ended_) {
    if (frames_left_ == 0) {
      unread_.assign(bytes.begin(), bytes.end());
      return {};
    }
    if (header_got_ < FrameHeader::kBytes) {
      const std::size_t n = std::min(bytes.size(), FrameHeader::kBytes - header_got_);
      std::copy_n(bytes.begin(), n,
                  header_bytes_.begin() + static_cast<std::ptrdiff_t>(header_got_));
      header_got_ += n;
      bytes = bytes.subspan(n);
      if (header_got_ < FrameHeader::kBytes) return {};
      PRECIS_TRY(begin_body());
    }
    const std::size_t n = std::min<std::size_t>(bytes.size(), header_.size_bytes - body_got_);
    if (body_got_ + n > body_.size() && !grow_body(n)) return {};
    std::copy_n(bytes.begin(), n, body_.begin() + static_cast<std::ptrdiff_t>(body_got_));
    body_got_ += n;
    bytes = bytes.subspan(n);
    if (body_got_ == header_.size_bytes) hand_out();
    if (body_got_ == body_.size() && body_got_ > 0 && !ended_ && !grow_body(body_got_)) return {};
  }
  return {};
}

Status ControlStream::begin_body() {
  PRECIS_ASSIGN(header_, decode_frame_header(header_bytes_));
  body_got_ = 0;
  body_ = {};
  if (header_.size_bytes <= limits::kMessageBytesMax) return {};
  return Status::invalid("a frame of " + std::to_string(header_.size_bytes) +
                         " B exceeds the limit of " + std::to_string(limits::kMessageBytesMax) +
                         " B");
}

// The memory of a body grows with its received bytes, not with the size in its header, and is
// counted first. Returns false if the stream ended because of the limit.
bool ControlStream::grow_body(std::size_t arriving) {
  const std::size_t wanted = std::min<std::size_t>(
      header_.size_bytes, std::max({body_got_ + arriving, 2 * body_got_, kReadBytes}));
  if (wanted <= body_.size()) return true;
  if (meter_ != nullptr && !meter_->take(*this, wanted - body_.size())) return false;
  body_.resize(wanted);
  return true;
}

void ControlStream::hand_out() {
  header_got_ = 0;
  body_got_ = 0;
  --frames_left_;
  if (meter_ != nullptr) meter_->give_back(*this);
  const auto handlers = handlers_;
  if (handlers) handlers->on_frame(header_, std::exchange(body_, {}));
  if (loop_.clock().now() >= turn_ends_) frames_left_ = 0;
}

void ControlStream::send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk) {
  if (ended_ || !socket_) return;
  const FrameHeader header{kind, static_cast<std::uint32_t>(body.size()), after_bulk};
  unsent_bytes_ += FrameHeader::kBytes + body.size();
  outgoing_.push_back({encode_frame_header(header), std::move(body)});
  if (unsent_bytes_ > limits::kSendQueueBytesMax) {
    flush();
    if (unsent_bytes_ > limits::kSendQueueBytesMax) {
      return end(Status::rejected("the peer does not read: more than " +
                                  std::to_string(limits::kSendQueueBytesMax) + " B wait for it"));
    }
  }
  if (std::exchange(flush_posted_, true)) return;
  loop_.post([self = shared_from_this()] {
    self->flush_posted_ = false;
    self->flush();
  });
}

void ControlStream::flush() {
  while (!outgoing_.empty() && socket_ && !ended_) {
    std::array<Bytes, kRangesMax> ranges;
    std::size_t count = 0, skip = front_sent_;
    for (const Outgoing& frame : outgoing_) {
      if (count + 2 > kRangesMax) break;
      for (const Bytes part : {Bytes(frame.header), Bytes(frame.body)}) {
        const std::size_t skipped = std::min(skip, part.size());
        skip -= skipped;
        if (part.size() > skipped) ranges[count++] = part.subspan(skipped);
      }
    }
    const Socket::Io io = socket_->write(std::span(ranges).first(count));
    if (io.state == Socket::Io::State::kEnded) return end(io.why);
    if (io.state == Socket::Io::State::kWait) {
      if (watch_) watch_->await_writable();
      return;
    }
    unsent_bytes_ -= io.bytes;
    front_sent_ += io.bytes;
    while (!outgoing_.empty()) {
      const std::size_t size = FrameHeader::kBytes + outgoing_.front().body.size();
      if (front_sent_ < size) break;
      front_sent_ -= size;
      outgoing_.pop_front();
    }
  }
}

}  // namespace precis
