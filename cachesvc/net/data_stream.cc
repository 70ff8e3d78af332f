#include "cachesvc/net/data_stream.h"

#include <algorithm>
#include <string>
#include <utility>

namespace precis {
namespace {

// One turn of the loop moves at most this much of one stream, and a call to the kernel this much:
// so long others wait, and so long close() does.
constexpr std::size_t kTurnBytesMax = 2u << 20;
constexpr std::size_t kCallBytesMax = 512u << 10;
// Up to here a thread that is not the loop's sends itself: a copy takes less time than a wake-up.
constexpr std::size_t kInlineBytesMax = 256u << 10;
constexpr std::size_t kRangesMax = 64;
constexpr std::size_t kThrowAwayBytes = 64u << 10;
// What a header counts as in a turn: it costs a call to the kernel, and more where it is answered.
constexpr std::size_t kHeaderWorth = 16u << 10;

// A peer that asks for more without reading what it gets is dropped.
constexpr std::size_t kFramesMax = 4096;

const std::array<std::byte, kThrowAwayBytes> kZeros{};

// The same number of bytes, all of them zero.
std::vector<Bytes> zeros_instead(const std::vector<Bytes>& ranges) {
  std::vector<Bytes> zeros;
  for (const Bytes range : ranges) {
    for (std::size_t left = range.size(); left > 0;) {
      const std::size_t n = std::min(left, kZeros.size());
      zeros.push_back(Bytes(kZeros).first(n));
      left -= n;
    }
  }
  return zeros;
}

}  // namespace

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
  // The watch is the loop's; it refers to this object.
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

// One call to the kernel. `waits`: nothing more is there for now, or ever.
Status DataStream::receive_some(std::size_t& budget, bool& waits) {
  std::unique_lock lock(receiving_);
  const auto handlers = handlers_;
  if (!handlers || closed_ || !watch_) {
    waits = true;
    return {};
  }
  Socket::Io io;
  if (header_got_ < BulkHeader::kBytes) {
    Descriptor passed;
    const auto room = MutableBytes(header_bytes_).subspan(header_got_);
    io = socket_->shares_state() ? [&] {
      const std::lock_guard sending(sending_);
      return socket_->read(room);
    }()
                                 : socket_->read(room, passed);
    if (passed) passed_ = std::move(passed);
    if (io.state == Socket::Io::State::kMoved) {
      budget -= std::min(budget, kHeaderWorth);
      header_got_ += io.bytes;
      if (header_got_ < BulkHeader::kBytes) return {};
      lock.unlock();
      PRECIS_ASSIGN(header_, decode_bulk_header(header_bytes_));
      data_got_ = 0;
      PRECIS_TRY(handlers->on_frame(header_, std::exchange(passed_, Descriptor())));
      if (!header_.has_data() || header_.size_bytes == 0) {
        header_got_ = 0;
        if (header_.has_data()) handlers->on_data(header_);
      }
      return {};
    }
  } else {
    thread_local std::array<std::byte, kThrowAwayBytes> thrown_away;
    const std::size_t left = header_.size_bytes - data_got_;
    Place place = handlers->place(header_, data_got_);
    MutableBytes into = place.bytes.empty() ? MutableBytes(thrown_away) : place.bytes;
    into = into.first(std::min({into.size(), left, kCallBytesMax}));
    io = socket_->shares_state() ? [&] {
      const std::lock_guard sending(sending_);
      return socket_->read(into);
    }()
                                 : socket_->read(into);
    place.hold.reset();
    if (io.state == Socket::Io::State::kMoved) {
      budget -= std::min(budget, io.bytes);
      data_got_ += io.bytes;
      if (data_got_ < header_.size_bytes) return {};
      header_got_ = 0;
      lock.unlock();
      handlers->on_data(header_);
      return {};
    }
  }
  waits = true;
  return io.state == Socket::Io::State::kEnded ? io.why : Status();
}

void DataStream::send(Frame frame) {
  auto queued = std::make_unique<Queued>();
  queued->header = encode_bulk_header(frame.header);
  queued->ranges.emplace_back(queued->header);
  std::size_t size = 0;
  for (const Bytes range : frame.data) {
    if (range.empty()) continue;
    queued->ranges.push_back(range);
    size += range.size();
  }
  queued->frame = std::move(frame);
  {
    const std::lock_guard lock(queue_mutex_);
    if (!closed_ && queue_.size() < kFramesMax) {
      auto at = queue_.end();
      if (queued->frame.first) {
        at = std::find_if(queue_.begin(), queue_.end(),
                          [](const auto& other) { return !other->begun && !other->frame.first; });
      }
      queue_.insert(at, std::move(queued));
    }
  }
  if (queued) {
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
  while (more && !blocked_ && !closed_ && calls < kTurnBytesMax / kCallBytesMax) {
    more = send_front(told);
    ++calls;
  }
  bool left = false;
  {
    const std::lock_guard lock(queue_mutex_);
    left = !queue_.empty();
  }
  const bool blocked = blocked_;
  sending.unlock();
  for (const auto& tell : told) tell();
  if (!left || closed_) return;
  if (!blocked) return post_flush();
  if (on_loop) {
    if (watch_) watch_->await_writable();
  } else {
    loop_.post([self] {
      if (self->watch_) self->watch_->await_writable();
    });
  }
}

// One call to the kernel; false where nothing is left to send. The caller holds sending_.
bool DataStream::send_front(std::vector<std::function<void()>>& told) {
  Queued* front = nullptr;
  {
    const std::lock_guard lock(queue_mutex_);
    if (queue_.empty()) return false;
    front = queue_.front().get();
    front->begun = true;
  }
  std::shared_ptr<void> hold;
  if (front->frame.hold && front->whole && !front->frame.data.empty()) {
    hold = front->frame.hold();
    if (hold == nullptr) {
      front->whole = false;
      // The header may be partly sent, so it stays where it is the first.
      const bool has_header =
          front->ranges.front().data() >= front->header.data() &&
          front->ranges.front().data() < front->header.data() + front->header.size();
      std::vector<Bytes> rest(front->ranges.begin() + (has_header ? 1 : 0), front->ranges.end());
      auto ranges = zeros_instead(rest);
      if (has_header) ranges.insert(ranges.begin(), front->ranges.front());
      front->ranges = std::move(ranges);
    }
  }
  std::array<Bytes, kRangesMax> some;
  std::size_t count = 0, size = 0;
  for (const Bytes range : front->ranges) {
    if (count == kRangesMax || size == kCallBytesMax) break;
    some[count] = range.first(std::min(range.size(), kCallBytesMax - size));
    size += some[count++].size();
  }
  const Socket::Io io = front->frame.pass >= 0 && !front->ranges.empty()
                            ? socket_->write(some[0], front->frame.pass)
                            : socket_->write(std::span(some).first(count));
  if (io.state == Socket::Io::State::kWait) blocked_ = true;
  if (io.state == Socket::Io::State::kEnded) {
    // The end shows when the peer is read from, after all that it had sent.
    blocked_ = true;
    return false;
  }
  if (io.state != Socket::Io::State::kMoved) return true;
  front->frame.pass = -1;
  std::size_t left = io.bytes;
  auto range = front->ranges.begin();
  for (; range != front->ranges.end() && left >= range->size(); ++range) left -= range->size();
  if (range != front->ranges.end()) *range = range->subspan(left);
  front->ranges.erase(front->ranges.begin(), range);
  if (!front->ranges.empty()) return true;
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
