#include "tests/bench/transport_ceilings.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "cachesvc/base/stream_copy.h"
#include "tests/bench/all_at_once.h"

namespace precis::bench {
namespace {

constexpr std::size_t kPoolBytes = 256u << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status error(const char* what) {
  return Status::unavailable(std::string(what) + ": " + std::strerror(errno));
}

bool write_all(int fd, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool read_all(int fd, MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

ColdPool::ColdPool(std::size_t size_bytes) : memory_(nullptr), size_(size_bytes) {
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PRECIS_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
  ::madvise(memory, size_, MADV_HUGEPAGE);  // as the service does for its own memory
  std::memset(memory_, 1, size_);           // every page is present before anything is measured
}

ColdPool::~ColdPool() { ::munmap(memory_, size_); }

MutableBytes ColdPool::next(std::size_t size_bytes) {
  PRECIS_CHECK(size_bytes <= size_);
  if (at_ + size_bytes > size_) at_ = 0;
  const MutableBytes piece = all().subspan(at_, size_bytes);
  at_ += (size_bytes + 63) / 64 * 64;
  at_ = std::min(at_, size_);
  return piece;
}

std::size_t lane_pool_bytes(std::size_t size_bytes, std::size_t lanes) {
  return std::max(kPoolBytes, size_bytes) / lanes / 64 * 64;
}

namespace {

// Calls `move` with the size of each piece; a piece fits a lane's pools.
template <typename Move>
void in_pieces(std::size_t size_bytes, std::size_t pool_bytes, const Move& move) {
  for (std::size_t left = size_bytes; left > 0; left -= std::min(left, pool_bytes)) {
    move(std::min(left, pool_bytes));
  }
}

}  // namespace

CopyCeiling::CopyCeiling(std::size_t size_bytes, std::size_t lanes)
    : size_bytes_((size_bytes + 63) / 64 * 64) {
  for (std::size_t i = 0; i < lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>(lane_pool_bytes(size_bytes_, lanes)));
  }
}

double CopyCeiling::run(std::size_t times) {
  return all_at_once(lanes_.size(), [&](std::size_t i) {
    Lane& lane = *lanes_[i];
    for (std::size_t t = 0; t < times; ++t) {
      in_pieces(size_bytes_, lane.to.all().size(), [&](std::size_t n) {
        stream_copy(lane.to.next(n).data(), lane.from.next(n).data(), n);
      });
    }
  });
}

struct SocketCeiling::Lane {
  Lane(int s, int r, std::size_t pool_bytes)
      : sender(s), receiver(r), from(pool_bytes), to(pool_bytes) {}
  ~Lane() { ::shutdown(sender.fd(), SHUT_RDWR); }

  // Receives until the sender closes. Answers each run with one byte once it has arrived whole.
  void receive(std::size_t size_bytes) {
    for (bool there = true; there;) {
      in_pieces(size_bytes, to.all().size(),
                [&](std::size_t n) { there = there && read_all(receiver.fd(), to.next(n)); });
      const std::byte got{1};
      there = there && write_all(receiver.fd(), {&got, 1});
    }
  }
  void send(std::size_t size_bytes) {
    in_pieces(size_bytes, from.all().size(),
              [&](std::size_t n) { failed = failed || !write_all(sender.fd(), from.next(n)); });
    std::byte got;
    failed = failed || !read_all(sender.fd(), {&got, 1});
  }

  Socket sender, receiver;
  ColdPool from, to;
  bool failed = false;
  std::jthread receiving;  // last member: the thread uses all of the above
};

SocketCeiling::SocketCeiling(std::size_t size_bytes) : size_bytes_(size_bytes) {}
SocketCeiling::~SocketCeiling() = default;

Result<std::unique_ptr<SocketCeiling>> SocketCeiling::open(std::size_t size_bytes,
                                                           std::size_t lanes) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.fd(), generic, length) != 0 || ::listen(listener.fd(), 1) != 0 ||
      ::getsockname(listener.fd(), generic, &length) != 0) {
    return error("listen on 127.0.0.1");
  }
  std::unique_ptr<SocketCeiling> made(new SocketCeiling(size_bytes));
  for (std::size_t i = 0; i < lanes; ++i) {
    const int sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(sender, generic, length) != 0) return error("connect to 127.0.0.1");
    const int receiver = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    if (receiver < 0) return error("accept on 127.0.0.1");
    auto lane = std::make_unique<Lane>(sender, receiver, lane_pool_bytes(size_bytes, lanes));
    lane->receiving = std::jthread([lane = lane.get(), size_bytes] { lane->receive(size_bytes); });
    made->lanes_.push_back(std::move(lane));
  }
  return made;
}

Result<double> SocketCeiling::run(std::size_t times) {
  const double seconds = all_at_once(lanes_.size(), [&](std::size_t i) {
    for (std::size_t t = 0; t < times; ++t) lanes_[i]->send(size_bytes_);
  });
  for (const auto& lane : lanes_) {
    if (lane->failed) return error("move bytes over 127.0.0.1");
  }
  return seconds;
}

}  // namespace precis::bench
