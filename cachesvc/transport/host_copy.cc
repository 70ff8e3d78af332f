#include "cachesvc/transport/host_copy.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

namespace precis {
namespace {

// How long the end of a link waits for a server that still holds the window.
constexpr int kLetGoTimeoutMs = 1000;
// Between two looks at a region that the server is copying or reads: a few hundred KiB of its work.
constexpr std::chrono::microseconds kReleasePause{50};

bool readable(int descriptor, int timeout_ms) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, timeout_ms) > 0;
}

// Descriptors of peers that are being closed. Whoever has so many of them that do not end only
// keeps pages from being mapped.
std::atomic<int> closing{0};
constexpr int kClosingMax = 16;

// On a thread that nobody waits for: closing a file asks its file system, which the peer may run
// and let hang, and closing the last of a memory file frees it all.
void close_elsewhere(int descriptor) {
  ++closing;
  try {
    std::thread([descriptor] {
      ::close(descriptor);
      --closing;
    }).detach();
  } catch (const std::system_error&) {
    // No thread: it stays open, and counted.
  }
}

std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

HostId this_host() {
  HostId id{};
  char text[37] = {};  // 32 hexadecimal digits in groups with dashes
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return id;
  const ssize_t n = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (n != sizeof(text) - 1) return id;
  std::string digits(text, sizeof(text) - 1);
  std::erase(digits, '-');
  for (std::size_t i = 0; i < id.size(); ++i) {
    unsigned byte = 0;
    const char* first = digits.data() + 2 * i;
    if (std::from_chars(first, first + 2, byte, 16).ptr != first + 2) return {};
    id[i] = static_cast<std::byte>(byte);
  }
  return id;
}

HostWindow::HostWindow() : words_(std::make_unique<Words>()) {}

HostWindow::~HostWindow() {
  if (socket_ < 0) return;
  if (!server_let_go()) readable(socket_, kLetGoTimeoutMs);
  if (!server_let_go()) static_cast<void>(words_.release());
  ::close(socket_);
}

std::uint64_t HostWindow::challenge_address() const { return address_of(&words_->challenge); }

void HostWindow::answer(const HostChallenge& challenge) { words_->challenge = challenge; }

void HostWindow::watch(int socket) { socket_ = ::fcntl(socket, F_DUPFD_CLOEXEC, 0); }

bool HostWindow::server_let_go() const {
  char byte;
  const ssize_t n = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

HostSlot* HostWindow::claim(std::uint64_t region_id) {
  const std::lock_guard lock(mutex_);
  HostSlot* slot;
  if (free_.empty()) {
    slot = &words_->slots.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slot->open.store(region_id);
  return slot;
}

void HostWindow::release(HostSlot* slot) {
  slot->open.store(0);  // before the load, in the one order of all such operations
  while (slot->active.load() != 0 && !server_let_go()) std::this_thread::sleep_for(kReleasePause);
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);
}

Result<std::shared_ptr<HostPeer>> HostPeer::prove(std::uint32_t pid,
                                                  std::uint64_t challenge_address,
                                                  const HostChallenge& challenge) {
  const auto number = static_cast<pid_t>(pid);
  const int pidfd =
      number > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, number, 0)) : (errno = ESRCH, -1);
  if (pidfd < 0) {
    return Status::unsupported("process " + std::to_string(pid) +
                               " is not of this host: " + std::strerror(errno));
  }
  // Shared by the link and the copies under way.
  std::shared_ptr<HostPeer> peer(new HostPeer(pid, pidfd));
  HostChallenge answer{};
  const MutableBytes into(answer);
  if (const Status status = peer->read({&into, 1}, challenge_address); !status.ok()) {
    return Status::unsupported(status.message());
  }
  if (answer != challenge) {
    return Status::unsupported("process " + std::to_string(pid) + " is not the peer");
  }
  return peer;
}

HostPeer::~HostPeer() { ::close(pidfd_); }

template <typename Call>
Status HostPeer::copy(Call call, std::span<const MutableBytes> local, std::uint64_t remote) const {
  std::vector<iovec> ranges;
  std::size_t left = 0;
  for (const MutableBytes range : local) {
    ranges.push_back({range.data(), range.size()});
    left += range.size();
  }
  std::span<iovec> rest(ranges);
  while (left > 0) {
    if (readable(pidfd_, 0)) {
      return Status::unavailable("process " + std::to_string(pid_) + " has ended");
    }
    iovec there{reinterpret_cast<void*>(remote), left};
    const auto count = std::min<std::size_t>(rest.size(), IOV_MAX);
    const ssize_t n = call(static_cast<pid_t>(pid_), rest.data(), count, &there);
    if (n <= 0) {
      const std::string what = std::to_string(left) + " B at " + std::to_string(remote) +
                               " of process " + std::to_string(pid_) + ": " + std::strerror(errno);
      return errno == EFAULT ? Status::invalid(what) : Status::unavailable(what);
    }
    // What was copied may end within a range.
    auto copied = static_cast<std::size_t>(n);
    left -= copied;
    remote += copied;
    while (copied > 0) {
      iovec& first = rest.front();
      const std::size_t step = std::min(copied, first.iov_len);
      first = {static_cast<std::byte*>(first.iov_base) + step, first.iov_len - step};
      copied -= step;
      if (first.iov_len == 0) rest = rest.subspan(1);
    }
  }
  return {};
}

Result<std::unique_ptr<Pages>> HostPeer::map(std::uint32_t descriptor,
                                             std::size_t size_bytes) const {
  if (closing >= kClosingMax) {
    return Status::unsupported("peers' descriptors are still being closed");
  }
  const auto copied = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_, descriptor, 0));
  if (copied < 0) {
    return Status::unsupported("descriptor " + std::to_string(descriptor) + " of process " +
                               std::to_string(pid_) + ": " + std::strerror(errno));
  }
  auto pages = Pages::adopt(copied, size_bytes);
  if (!pages.ok()) close_elsewhere(copied);
  return pages;
}

Status HostPeer::read(std::span<const MutableBytes> into, std::uint64_t remote) const {
  return copy([](pid_t pid, const iovec* local, std::size_t count,
                 const iovec* there) { return ::process_vm_readv(pid, local, count, there, 1, 0); },
              into, remote);
}

Status HostPeer::write(std::span<const MutableBytes> from, std::uint64_t remote) const {
  return copy(
      [](pid_t pid, const iovec* local, std::size_t count, const iovec* there) {
        return ::process_vm_writev(pid, local, count, there, 1, 0);
      },
      from, remote);
}

}  // namespace precis
