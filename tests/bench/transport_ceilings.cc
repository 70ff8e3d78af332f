#include "tests/bench/transport_ceilings.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace precis::bench {
namespace {

constexpr std::size_t kPoolBytes = 256u << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Copies whole cache lines past the caches where the processor can.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size) {
#if defined(__SSE2__)
  auto* out = reinterpret_cast<__m128i*>(to);
  const auto* in = reinterpret_cast<const __m128i*>(from);
  for (std::size_t i = 0; i < size / 16; i += 4) {
    for (std::size_t j = i; j < i + 4; ++j) _mm_stream_si128(out + j, _mm_load_si128(in + j));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, size);
#endif
}

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

Rate summarize(std::vector<double> rates) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  return {rates[rates.size() / 2], rates.front(), rates.back(), rates.size()};
}

ColdPool::ColdPool(std::size_t size_bytes) : memory_(nullptr), size_(size_bytes) {
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PRECIS_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
  std::memset(memory_, 1, size_);  // every page is there before anything is measured
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

Rate measure_copy(std::size_t size_bytes, std::size_t runs) {
  size_bytes = (size_bytes + 63) / 64 * 64;
  ColdPool from(std::max(kPoolBytes, size_bytes)), to(std::max(kPoolBytes, size_bytes));
  std::vector<double> rates;
  for (std::size_t run = 0; run < runs; ++run) {
    const double begin = seconds_now();
    stream_copy(to.next(size_bytes).data(), from.next(size_bytes).data(), size_bytes);
    rates.push_back(static_cast<double>(size_bytes) / (seconds_now() - begin) / 1e9);
  }
  return summarize(std::move(rates));
}

Result<Rate> measure_socket(std::size_t size_bytes, std::size_t runs) {
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
  const Socket sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(sender.fd(), generic, length) != 0) return error("connect to 127.0.0.1");
  const Socket receiver(::accept(listener.fd(), nullptr, nullptr));
  if (receiver.fd() < 0) return error("accept on 127.0.0.1");

  ColdPool from(std::max(kPoolBytes, size_bytes)), to(std::max(kPoolBytes, size_bytes));
  // The receiver confirms each run with a byte, so that its end is the receiver's.
  std::thread receiving([&] {
    const std::byte got{1};
    for (std::size_t run = 0; run < runs; ++run) {
      if (!read_all(receiver.fd(), to.next(size_bytes)) || !write_all(receiver.fd(), {&got, 1})) {
        break;
      }
    }
    ::shutdown(receiver.fd(), SHUT_RDWR);
  });
  std::vector<double> rates;
  for (std::size_t run = 0; run < runs; ++run) {
    std::byte got;
    const double begin = seconds_now();
    if (!write_all(sender.fd(), from.next(size_bytes)) || !read_all(sender.fd(), {&got, 1})) break;
    rates.push_back(static_cast<double>(size_bytes) / (seconds_now() - begin) / 1e9);
  }
  ::shutdown(sender.fd(), SHUT_RDWR);
  receiving.join();
  if (rates.size() < runs) return error("move bytes over 127.0.0.1");
  return summarize(std::move(rates));
}

}  // namespace precis::bench
