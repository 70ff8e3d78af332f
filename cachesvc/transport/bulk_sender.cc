#include "cachesvc/transport/bulk_sender.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace precis {
namespace {

// From here on a frame takes longer to send than a thread to wake.
constexpr std::size_t kLargeBytes = 256u << 10;
// What a thread gives the kernel in one call: so long a close waits for it, others for its core,
// and the loop where it reads from the same socket, which the kernel holds meanwhile.
constexpr std::size_t kCallBytesMax = 256u << 10;
// Ranges given to the kernel in one call.
constexpr std::size_t kRangesMax = 64;

struct Sent {
  std::size_t size_bytes = 0;
  int error = 0;  // an errno
};

// Gives the kernel so much at most, without waiting, and takes what it took off the ranges.
Sent send_some(int socket, std::vector<Bytes>& ranges, std::size_t size_bytes_max) {
  std::array<iovec, kRangesMax> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  for (const Bytes range : ranges) {
    if (message.msg_iovlen == kRangesMax || size_bytes_max == 0) break;
    const std::size_t size = std::min(range.size(), size_bytes_max);
    parts[message.msg_iovlen++] = {const_cast<std::byte*>(range.data()), size};
    size_bytes_max -= size;
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return {0, errno};
  auto left = static_cast<std::size_t>(sent);
  auto range = ranges.begin();
  for (; range != ranges.end() && left >= range->size(); ++range) left -= range->size();
  if (range != ranges.end()) *range = range->subspan(left);
  ranges.erase(ranges.begin(), range);
  return {static_cast<std::size_t>(sent), 0};
}

}  // namespace

// Frames that a thread sends, call by call: it touches them while it holds `working`, and unless it
// was stopped. `sender` is the loop's.
struct BulkSender::Burst {
  BulkSender* sender;  // null once that has closed
  std::mutex working;
  std::atomic<bool> stopped{false};  // set ahead of taking `working`, for who waits may wait long
  Frames frames;
  Frames::iterator next;  // the first that is not wholly sent
  int error = 0;

  void run(int socket) {
    while (const std::size_t sent = send_next(socket)) give_way(sent);
  }
  // What one call sent; nothing where there is no more to do.
  std::size_t send_next(int socket) {
    const std::lock_guard lock(working);
    if (stopped || next == frames.end()) return 0;
    const Sent sent = send_some(socket, next->ranges, kCallBytesMax);
    error = sent.error;
    if (next->ranges.empty()) ++next;
    return sent.size_bytes;
  }
};

BulkSender::BulkSender(EventLoop& loop, int socket, Executor* threads, Handlers handlers)
    : loop_(loop),
      socket_(socket),
      watched_socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
      threads_(threads),
      handlers_(std::move(handlers)) {
  if (watched_socket_ < 0) proceed(errno);
}

void BulkSender::close() {
  writable_.reset();
  breaking_.reset();
  if (const auto burst = std::exchange(burst_, nullptr)) {
    burst->stopped = true;
    burst->sender = nullptr;
    const std::lock_guard at_rest(burst->working);
    frames_.splice(frames_.begin(), burst->frames);
  }
  if (watched_socket_ >= 0) ::close(std::exchange(watched_socket_, -1));
  for (Frame& frame : std::exchange(frames_, {})) frame.sent(frame.ranges.empty());
}

void BulkSender::halt() {
  halted_ = true;
  writable_.reset();
  if (burst_) burst_->stopped = true;
}

void BulkSender::send(const AmHeader& header, const std::vector<Bytes>& data,
                      std::function<void(bool)> sent) {
  if (watched_socket_ < 0) return sent(false);
  Frame& frame = frames_.emplace_back();
  frame.header = encode_am_header(header);
  frame.ranges.emplace_back(frame.header);
  frame.ranges.insert(frame.ranges.end(), data.begin(), data.end());
  frame.large = header.size_bytes >= kLargeBytes;
  frame.sent = std::move(sent);
  transmit();
}

void BulkSender::poll() {
  if (!transmitting_) writable_.reset();  // whoever polls does not let the loop wait for it
  transmit();
}

void BulkSender::transmit() {
  if (transmitting_ || burst_ || writable_ || halted_ || frames_.empty()) return;
  if (threads_ && frames_.front().large) return start_burst();
  transmitting_ = true;  // `sent` may send
  const Sent sent = send_some(socket_, frames_.front().ranges, SIZE_MAX);
  if (frames_.front().ranges.empty()) {
    const auto done = std::move(frames_.front().sent);
    frames_.pop_front();
    done(true);
  }
  transmitting_ = false;
  proceed(sent.error);
}

void BulkSender::start_burst() {
  burst_ = std::make_shared<Burst>();
  burst_->sender = this;
  burst_->frames.swap(frames_);
  burst_->next = burst_->frames.begin();
  threads_->post([burst = burst_, socket = socket_, &loop = loop_] {
    burst->run(socket);
    loop.post([burst] {
      if (BulkSender* const sender = burst->sender) sender->end_burst(*burst);
    });
  });
}

void BulkSender::end_burst(Burst& burst) {
  const auto in_hand = std::exchange(burst_, nullptr);  // it is this burst, and lives on
  frames_.splice(frames_.begin(), burst.frames, burst.next, burst.frames.end());
  transmitting_ = true;  // they may send
  for (Frame& frame : std::exchange(burst.frames, {})) frame.sent(true);
  transmitting_ = false;
  if (watched_socket_ < 0) return;  // one of them closed
  turn([&] { burst.error == 0 ? transmit() : proceed(burst.error); });
}

void BulkSender::proceed(int error) {
  if (error != 0 && error != EAGAIN && error != EWOULDBLOCK) {
    halted_ = true;
    // A peer that is gone shows when it is read from, after all that it had sent.
    if (error == EPIPE || error == ECONNRESET) return;
    // Not at once: the owner may be amid something.
    breaking_ = loop_.after({}, [this, error] { handlers_.broken(error); });
    return;
  }
  if (frames_.empty() || halted_ || writable_ || burst_ || watched_socket_ < 0) return;
  writable_ = loop_.watch_writable(watched_socket_, [this] {
    writable_.reset();
    turn([this] { transmit(); });
  });
}

void BulkSender::turn(const std::function<void()>& move) {
  move();
  if (watched_socket_ >= 0) handlers_.moved();
}

}  // namespace precis
