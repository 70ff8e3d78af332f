#include "cachesvc/transport/bulk_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace precis {
namespace {

// What one turn of the loop receives at most, so that the others have their turn.
constexpr std::size_t kTurnBytesMax = std::size_t{512} << 10;
// Calls to send, each of a frame at most: a megabyte.
constexpr std::size_t kTurnFramesMax = 1;
// Ranges given to the kernel in one call.
constexpr std::size_t kRangesMax = 64;
constexpr std::size_t kThrowAwayBytes = 64u << 10;

Status broken(const char* what) {
  return Status::unavailable(std::string("the peer is gone (") + what + ")");
}

}  // namespace

BulkStream::BulkStream(EventLoop& loop, int socket, Handlers handlers)
    : loop_(loop),
      // The loop may watch a descriptor once only, and the preface's is its own.
      socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
      write_socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
      handlers_(std::move(handlers)) {
  if (socket_ < 0 || write_socket_ < 0) {
    // Not at once: the owner does not have this object yet.
    loop_.post([gone = handlers_.gone] { gone(broken("no descriptor is left here")); });
    return;
  }
  readable_ = loop_.watch_readable(socket_, [this] { turn(&BulkStream::receive); });
}

void BulkStream::turn(void (BulkStream::*move)()) {
  (this->*move)();
  if (socket_ >= 0) handlers_.moved();
}

void BulkStream::close() {
  readable_.reset();
  writable_.reset();
  for (int* const descriptor : {&socket_, &write_socket_}) {
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }
  into_ = {};
  for (Outgoing& frame : std::exchange(outgoing_, {})) frame.sent(false);
}

void BulkStream::fail(const Status& reason) {
  if (socket_ < 0 || !handlers_.gone) return;
  readable_.reset();
  writable_.reset();
  std::exchange(handlers_.gone, nullptr)(reason);
}

void BulkStream::poll() {
  receive();
  transmit();
}

void BulkStream::receive() {
  for (std::size_t budget = kTurnBytesMax; budget > 0 && socket_ >= 0 && handlers_.gone;) {
    MutableBytes room = std::span(header_bytes_).subspan(header_got_);
    if (room.empty()) {
      if (into_.empty()) thrown_away_.resize(kThrowAwayBytes);
      room = into_.empty() ? MutableBytes(thrown_away_) : into_;
      room = room.first(std::min<std::uint64_t>({room.size(), data_left_, budget}));
    }
    const ssize_t got = ::recv(socket_, room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return fail(broken(got == 0 ? "End of file" : std::strerror(errno)));
    const auto size = static_cast<std::size_t>(got);
    budget -= std::min(budget, size);
    const bool short_read = size < room.size();
    if (const Status status = take(size); !status.ok()) return fail(status);
    if (short_read) return;  // that was all for now
  }
}

Status BulkStream::take(std::size_t size_bytes) {
  if (header_got_ < AmHeader::kBytes) {
    header_got_ += size_bytes;
    if (header_got_ < AmHeader::kBytes) return {};
    PRECIS_ASSIGN(header_, decode_am_header(header_bytes_));
    PRECIS_ASSIGN(into_, handlers_.begin(header_));
    data_left_ = header_.size_bytes;
  } else {
    data_left_ -= size_bytes;
    if (!into_.empty()) into_ = into_.subspan(size_bytes);
  }
  if (data_left_ > 0) return {};
  header_got_ = 0;
  into_ = {};
  handlers_.end(header_);
  return {};
}

void BulkStream::send(const AmHeader& header, const std::vector<Bytes>& data,
                      std::function<void(bool)> sent) {
  if (socket_ < 0) return sent(false);
  Outgoing& frame = outgoing_.emplace_back();
  frame.header = encode_am_header(header);
  frame.ranges.emplace_back(frame.header);
  frame.ranges.insert(frame.ranges.end(), data.begin(), data.end());
  frame.sent = std::move(sent);
  transmit();
}

void BulkStream::transmit() {
  if (std::exchange(transmitting_, true)) return;  // within a `sent`
  std::size_t frames = 0;
  while (socket_ >= 0 && !outgoing_.empty() && frames < kTurnFramesMax && transmit_some()) ++frames;
  if (outgoing_.empty()) {
    writable_.reset();
  } else if (broken_) {
    writable_.reset();
  } else if (socket_ >= 0 && handlers_.gone && !writable_) {
    writable_ = loop_.watch_writable(write_socket_, [this] { turn(&BulkStream::transmit); });
  }
  transmitting_ = false;
}

// False once the kernel takes no more.
bool BulkStream::transmit_some() {
  std::vector<Bytes>& ranges = outgoing_.front().ranges;
  std::array<iovec, kRangesMax> parts;
  const std::size_t count = std::min(ranges.size(), kRangesMax);
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = {const_cast<std::byte*>(ranges[i].data()), ranges[i].size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    broken_ = true;
    // A peer that is gone shows when it is read from, after all that it had sent.
    if (errno == EPIPE || errno == ECONNRESET || !handlers_.gone) return false;
    loop_.post([gone = std::exchange(handlers_.gone, nullptr), why = broken(std::strerror(errno))] {
      gone(why);  // not here, where the owner may be amid something
    });
    return false;
  }
  auto left = static_cast<std::size_t>(sent);
  auto range = ranges.begin();
  for (; range != ranges.end() && left >= range->size(); ++range) left -= range->size();
  if (range != ranges.end()) *range = range->subspan(left);
  ranges.erase(ranges.begin(), range);
  if (!ranges.empty()) return true;
  const auto done = std::move(outgoing_.front().sent);
  outgoing_.pop_front();
  done(true);
  return true;
}

}  // namespace precis
