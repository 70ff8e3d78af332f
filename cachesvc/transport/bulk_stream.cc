#include "cachesvc/transport/bulk_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
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
constexpr std::size_t kThrowAwayBytes = 64u << 10;

Status broken(const char* what) {
  return Status::unavailable(std::string("the peer is gone (") + what + ")");
}

}  // namespace

BulkStream::BulkStream(EventLoop& loop, int socket, Executor* senders, Handlers handlers)
    : loop_(loop),
      // The loop may watch a descriptor once only, and the preface's is its own.
      socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
      handlers_(std::move(handlers)),
      sender_(loop, socket, senders,
              {.moved = [this] { handlers_.moved(); },
               .broken = [this](int error) { fail(broken(std::strerror(error))); }}) {
  if (socket_ < 0) {
    // Not at once: the owner does not have this object yet.
    loop_.post([gone = handlers_.gone] { gone(broken("no descriptor is left here")); });
    return;
  }
  readable_ = loop_.watch_readable(socket_, [this] {
    receive();
    if (socket_ >= 0) handlers_.moved();
  });
}

void BulkStream::close() {
  readable_.reset();
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  into_ = {};
  sender_.close();
}

void BulkStream::fail(const Status& reason) {
  if (socket_ < 0 || !handlers_.gone) return;
  readable_.reset();
  sender_.halt();
  std::exchange(handlers_.gone, nullptr)(reason);
}

void BulkStream::poll() {
  receive();
  sender_.poll();
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
    if (got == 0) return fail(Status::unavailable("the peer closed the connection"));
    if (got < 0) return fail(broken(std::strerror(errno)));
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
  sender_.send(header, data, std::move(sent));
}

}  // namespace precis
