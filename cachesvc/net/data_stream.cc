#include "cachesvc/net/data_stream.h"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <utility>

namespace precis {
namespace {

// Limits of one turn of the loop for one stream, and of one call to the kernel: other streams wait
// for the turn, and close() waits for the call.
constexpr std::size_t kTurnBytesMax = 2u << 20;
constexpr std::size_t kCallBytesMax = 512u << 10;
// A thread other than the loop's sends frames up to this size itself: a copy takes less time than a
// wake-up.
constexpr std::size_t kInlineBytesMax = 256u << 10;
constexpr std::size_t kRangesMax = 64;
constexpr std::size_t kThrowAwayBytes = 64u << 10;
// A header counts as this many bytes of a turn: it takes a call to the kernel, and more if it is
// answered.
constexpr std::size_t kHeaderWorth = 16u << 10;

// A peer that requests more frames without reading them is disconnected.
constexpr std::size_t kFramesMax = 4096;

const std::array<std::byte, kThrowAwayBytes> kZeros{};

}  // namespace

DataStream::Place DataStream::place_in(RegionTable& table, std::uint64_t region,
                                       std::uint64_t offset, std::uint64_t size_bytes) {
  auto access = table.access(region, offset, size_bytes);
  if (!access.ok()) return {};
  const MutableBytes bytes = access->bytes();
  return {bytes, std::make_shared<RegionTable::Access>(std::move(*access))};
}

DataStream::DataStream(EventLoop& loop, std::unique_ptr<Socket> socket)
    : loop_(loop), socket_(std::move(socket)) {}

DataStream::~DataStream() = default;

void DataStream::start(Handlers handlers) {
  {
    const std::lock_guard lock(receiving_);
    if (closed_) return;
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
  }
  watch_ = loop_.watch_socket(
      socket_->descriptor(), [this] { receive(); },
      [this] {
        std::unique_lock sending(sending_);
        blocked_ = false;
        flush(std::move(sending));
      });
  loop_.post([self = shared_from_this()] {
    self->receive();
    self->flush(std::unique_lock(self->sending_));
  });
}

void DataStream::close() {
  if (closed_.exchange(true)) return;
  {
    const std::lock_guard lock(receiving_);
    handlers_ = nullptr;
  }
  std::deque<std::unique_ptr<Queued>> left;
  {
    const std::lock_guard sending(sending_);
    const std::lock_guard lock(queue_mutex_);
    left.swap(queue_);
  }
  for (const auto& queued : left) {
    if (queued->frame.sent) queued->frame.sent(false);
  }
  // The watch belongs to the loop's thread and refers to this object.
  if (loop_.on_loop_thread()) {
    watch_.reset();
  } else {
    loop_.post([self = shared_from_this()] { self->watch_.reset(); });
  }
}

void DataStream::fail(Status why) {
  std::shared_ptr<Handlers> handlers;
  {
    const std::lock_guard lock(receiving_);
    handlers = handlers_;
  }
  if (!handlers || closed_) return;
  watch_.reset();
  const auto on_end = std::exchange(handlers->on_end, nullptr);
  if (on_end) on_end(std::move(why));
}

void DataStream::receive() {
  const auto self = shared_from_this();
  if (closed_) return watch_.reset();
  if (turn_posted_) return;
  std::size_t budget = kTurnBytesMax;
  bool waits = false;
  while (!waits && budget > 0) {
    if (const Status status = receive_some(budget, waits); !status.ok()) return fail(status);
  }
  if (waits || !watch_) return;
  turn_posted_ = true;
  watch_->hold(true);
  loop_.post([self] {
    self->turn_posted_ = false;
    self->receive();
    if (self->watch_ && !self->turn_posted_) self->watch_->hold(false);
  });
}

// Makes one call to the kernel. Sets `waits` if no more bytes can arrive in this turn.
Status DataStream::receive_some(std::size_t& budget, bool& waits) {
  std::unique_lock lock(receiving_);
  const auto handlers = handlers_;
  waits = !handlers || closed_ || !watch_;
  if (waits) return {};
  const bool in_header = header_got_ < BulkHeader::kBytes;
  thread_local std::array<std::byte, kThrowAwayBytes> thrown_away;
  Place place;
  if (in_header) {
    place.bytes = MutableBytes(header_bytes_).subspan(header_got_);
  } else {
    place = handlers->place(header_, data_got_);
    if (place.bytes.empty()) place.bytes = thrown_away;
    const std::size_t left = header_.size_bytes - data_got_;
    place.bytes = place.bytes.first(std::min({place.bytes.size(), left, kCallBytesMax}));
  }
  Descriptor passed;
  const Socket::Io io = [&] {
    std::unique_lock sending(sending_, std::defer_lock);
    if (socket_->is_encrypted()) sending.lock();  // its two directions share state
    return socket_->read(place.bytes, in_header ? &passed : nullptr);
  }();
  place.hold.reset();
  if (passed) passed_ = std::move(passed);
  waits = io.state != Socket::Io::State::kMoved;
  if (waits) return io.why;
  budget -= std::min(budget, in_header ? kHeaderWorth : io.bytes);
  if (in_header) {
    header_got_ += io.bytes;
    if (header_got_ < BulkHeader::kBytes) return {};
    lock.unlock();
    PRECIS_ASSIGN(header_, decode_bulk_header(header_bytes_));
    data_got_ = 0;
    PRECIS_TRY(handlers->on_frame(header_, std::exchange(passed_, Descriptor())));
  } else {
    data_got_ += io.bytes;
    lock.unlock();
  }
  if (header_.has_data() && data_got_ < header_.size_bytes) return {};
  header_got_ = 0;
  if (header_.has_data()) handlers->on_data(header_);
  return {};
}

void DataStream::send(Frame frame) {
  auto queued = std::make_unique<Queued>();
  queued->header = encode_bulk_header(frame.header);
  std::size_t size = 0;
  for (const Bytes range : frame.data) {
    if (range.empty()) continue;
    queued->ranges.push_back(range);
    size += range.size();
  }
  if (frame.pass >= 0) queued->pass = Descriptor(::fcntl(frame.pass, F_DUPFD_CLOEXEC, 0));
  queued->frame = std::move(frame);
  {
    const std::lock_guard lock(queue_mutex_);
    if (!closed_ && queue_.size() < kFramesMax) {
      auto at = queue_.end();
      if (queued->frame.first) {
        at = std::find_if(queue_.begin(), queue_.end(),
                          [](const auto& other) { return !other->begun && !other->frame.first; });
      }
      queue_.insert(at, std::exchange(queued, nullptr));
    }
  }
  if (queued) {  // it was not queued
    if (queued->frame.sent) queued->frame.sent(false);
    if (closed_) return;
    return loop_.post([self = shared_from_this()] {
      self->fail(Status::rejected("the peer does not read: " + std::to_string(kFramesMax) +
                                  " bulk frames wait for it"));
    });
  }
  if (loop_.on_loop_thread()) return post_flush();
  if (size <= kInlineBytesMax) {
    std::unique_lock sending(sending_, std::try_to_lock);
    if (sending.owns_lock()) return flush(std::move(sending));
  }
  post_flush();
}

void DataStream::post_flush() {
  {
    const std::lock_guard lock(queue_mutex_);
    if (std::exchange(flush_posted_, true)) return;
  }
  loop_.post([self = shared_from_this()] {
    {
      const std::lock_guard lock(self->queue_mutex_);
      self->flush_posted_ = false;
    }
    self->flush(std::unique_lock(self->sending_));
  });
}

void DataStream::flush(std::unique_lock<std::mutex> sending) {
  const auto self = shared_from_this();
  const bool on_loop = loop_.on_loop_thread();
  std::vector<std::function<void()>> told;
  std::size_t calls = 0;
  bool more = true;
  while (more && !blocked_ && !unwritable_ && !closed_ && calls < kTurnBytesMax / kCallBytesMax) {
    more = send_front(told);
    ++calls;
  }
  bool left = false;
  {
    const std::lock_guard lock(queue_mutex_);
    left = !queue_.empty();
  }
  const bool blocked = blocked_, over = unwritable_ || closed_;
  sending.unlock();
  for (const auto& tell : told) tell();
  if (!left || over) return;
  if (!blocked) return post_flush();
  if (on_loop) {
    if (watch_) watch_->await_writable();
  } else {
    loop_.post([self] {
      if (self->watch_) self->watch_->await_writable();
    });
  }
}

// Makes one call to the kernel. Returns false if nothing is left to send. Callers hold sending_.
bool DataStream::send_front(std::vector<std::function<void()>>& told) {
  Queued* front = nullptr;
  {
    const std::lock_guard lock(queue_mutex_);
    if (queue_.empty()) return false;
    front = queue_.front().get();
    front->begun = true;
  }
  std::shared_ptr<void> hold;
  if (front->frame.hold && front->whole && !front->ranges.empty()) {
    hold = front->frame.hold();
    front->whole = hold != nullptr;
  }
  std::array<Bytes, kRangesMax> some{Bytes(front->header).subspan(front->header_sent)};
  std::size_t count = 1, size = 0;
  for (const Bytes range : front->ranges) {
    const Bytes from =
        front->whole ? range : Bytes(kZeros).first(std::min(range.size(), kZeros.size()));
    if (count == kRangesMax || size == kCallBytesMax) break;
    some[count] = from.first(std::min(from.size(), kCallBytesMax - size));
    size += some[count].size();
    if (some[count++].size() < range.size()) break;
  }
  const Socket::Io io = socket_->write(std::span(some).first(count), front->pass.get());
  if (io.state == Socket::Io::State::kWait) blocked_ = true;
  if (io.state == Socket::Io::State::kEnded) {
    // The end is reported when this side reads from the peer, after all bytes that the peer had
    // sent. The peer may have closed one direction only, so this side closes the other.
    socket_->shut_down();
    unwritable_ = true;
    return false;
  }
  if (io.state != Socket::Io::State::kMoved) return true;
  front->pass = Descriptor();
  const std::size_t of_header = std::min(io.bytes, BulkHeader::kBytes - front->header_sent);
  front->header_sent += of_header;
  std::size_t left = io.bytes - of_header;
  auto range = front->ranges.begin();
  for (; range != front->ranges.end() && left >= range->size(); ++range) left -= range->size();
  if (range != front->ranges.end()) *range = range->subspan(left);
  front->ranges.erase(front->ranges.begin(), range);
  if (!front->ranges.empty() || front->header_sent < BulkHeader::kBytes) return true;
  if (front->frame.header.has_data()) data_frames_sent_.fetch_add(1);
  std::unique_ptr<Queued> done;
  {
    const std::lock_guard lock(queue_mutex_);
    done = std::move(queue_.front());
    queue_.pop_front();
  }
  if (done->frame.sent) {
    told.push_back([sent = std::move(done->frame.sent), whole = done->whole] { sent(whole); });
  }
  return true;
}

}  // namespace precis
