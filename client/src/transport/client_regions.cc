#include "client/src/transport/client_regions.h"

#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

using std::chrono::steady_clock;

// How long to wait until the server has mapped a buffer. After that the stream is used instead.
constexpr std::chrono::seconds kShareTimeout{2};
// How long an Exposure's destructor waits for a server that neither releases the memory nor
// disconnects.
constexpr std::chrono::seconds kReleaseTimeout{10};
// The same with RDMA, where this side can cut off the server.
constexpr std::chrono::seconds kRdmaReleaseTimeout{1};
constexpr int kReleaseSpins = 2000;
constexpr std::chrono::microseconds kReleasePause{50};

}  // namespace

void ClientRegions::open(std::shared_ptr<RdmaDevice> device, std::function<void()> on_data,
                         std::function<void(Status)> on_end) {
  data_->start({
      .on_frame = [weak = weak_from_this()](const BulkHeader& header, Descriptor) -> Status {
        const auto self = weak.lock();
        return self ? self->on_frame(header) : Status::canceled("the link is over");
      },
      .place =
          [table = table_](const BulkHeader& header, std::size_t done) {
            return DataStream::place_in(*table, header.region, header.offset + done,
                                        header.size_bytes - done);
          },
      .on_data = [on_data = std::move(on_data)](const BulkHeader&) { on_data(); },
      .on_end = std::move(on_end),
  });
  const bool is_unix = data_->socket().is_unix();
  if (device && !is_unix) {
    auto peer = device->make_peer();
    if (peer.ok()) peer_ = std::move(*peer);
    device_ = std::move(device);
  }
  auto window = is_unix ? Pages::make_shared(kWindowBytes)
                : peer_ ? Pages::make_private(kWindowBytes)
                        : Status::unsupported("no Unix socket");
  if (!window.ok()) return;
  window_ = std::move(*window);
  for (std::uint32_t i = limits::kSharedSlotsMax; i > 0; --i) free_slots_.push_back(i - 1);
  if (is_unix) share(kWindowBuffer, *window_);
}

void ClientRegions::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    answered_.notify_all();
  }
  cut_off();
  if (data_) data_->close();
}

std::optional<RdmaTurn> ClientRegions::rdma_offer() const {
  if (!peer_ || !window_) return {};
  return RdmaTurn{peer_->address().device, peer_->address().endpoint, 0, ""};
}

Result<RdmaTurn> ClientRegions::join_rdma(const RdmaTurn& answer) {
  if (window_memory_) return Status::invalid("RDMA is joined already");
  if (answer.endpoint.empty()) return Status::unavailable("the server has no RDMA to give");
  PRECIS_ASSIGN(window_memory_, device_->register_memory(window_->bytes(), MemorySpace::kHost));
  PRECIS_TRY(peer_->connect({answer.device, answer.endpoint}));
  is_joined_ = true;
  const auto window = reinterpret_cast<std::uintptr_t>(window_->bytes().data());
  return RdmaTurn{"", "", window, window_memory_->key()};
}

void ClientRegions::cut_off() {
  if (!peer_) return;
  is_joined_ = false;
  peer_->close();
  is_cut_off_ = true;
}

Status ClientRegions::on_frame(const BulkHeader& header) {
  switch (header.kind) {
    case BulkKind::kPush: return {};
    case BulkKind::kPull: serve_pull(header); return {};
    case BulkKind::kShared: {
      const std::lock_guard lock(mutex_);
      const auto asked = shared_.find(header.id);  // absent if it was unshared meanwhile
      if (asked == shared_.end()) return {};
      asked->second = header.offset == 1 ? Shared::kMapped : Shared::kRefused;
      answered_.notify_all();
      return {};
    }
    default: return Status::invalid("a server sends no such bulk frame");
  }
}

void ClientRegions::serve_pull(const BulkHeader& header) {
  const auto end_transfer = [data = data_, id = header.id](bool whole) {
    data->send({.header = {BulkKind::kEnd, 0, id, 0, whole ? 0u : 1u}, .data = {}, .first = true});
  };
  const auto place = [table = table_, header] {
    return DataStream::place_in(*table, header.region, header.offset, header.size_bytes);
  };
  const MutableBytes bytes = place().bytes;
  if (bytes.empty()) return end_transfer(false);
  // The region may be retired before all of it is sent, so the right to read it is asked for again
  // before each piece.
  auto hold = [place] { return place().hold; };
  data_->send({.header = {BulkKind::kData, header.size_bytes, header.id, 0, 0},
               .data = {bytes},
               .hold = std::move(hold),
               .sent = end_transfer});
}

bool ClientRegions::share(std::uint64_t id, const Pages& pages) {
  if (window_ == nullptr || pages.descriptor() < 0) return false;
  std::unique_lock lock(mutex_);
  const bool is_new = shared_.emplace(id, Shared::kAsked).second;
  if (is_new) {
    lock.unlock();
    data_->send({.header = {BulkKind::kShare, 0, id, 0, pages.bytes().size()},
                 .data = {},
                 .pass = pages.descriptor()});
    // This thread waits for the answer, so a lent loop must look for it at once.
    if (!loop_.on_loop_thread()) loop_.post([&loop = loop_] { loop.expect(); });
    lock.lock();
  }
  if (!loop_.on_loop_thread()) {
    answered_.wait_for(lock, kShareTimeout,
                       [&] { return is_closed_ || shared_[id] != Shared::kAsked; });
  }
  return shared_[id] == Shared::kMapped;
}

void ClientRegions::unshare(std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    if (shared_.erase(id) == 0 || is_closed_) return;
  }
  data_->send({.header = {BulkKind::kUnshare, 0, id, 0, 0}, .data = {}});
}

bool ClientRegions::claim_slot(std::uint64_t region, std::uint32_t& index) {
  const std::lock_guard lock(mutex_);
  const auto window = shared_.find(kWindowBuffer);
  const bool is_mapped = window != shared_.end() && window->second == Shared::kMapped;
  if (free_slots_.empty() || (!is_mapped && !has_rdma())) return false;
  index = free_slots_.back();
  free_slots_.pop_back();
  window_slots(window_->bytes())[index].open.store(region);
  return true;
}

bool ClientRegions::has_ended() const {
  pollfd wait{data_->socket().descriptor(), POLLRDHUP, 0};
  return ::poll(&wait, 1, 0) > 0 && (wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void ClientRegions::release_slot(std::uint32_t index) {
  SharedSlot& slot = window_slots(window_->bytes())[index];
  slot.open.store(0);
  const auto deadline = loop_.clock().now() + (peer_ ? kRdmaReleaseTimeout : kReleaseTimeout);
  for (int spins = 0; slot.active.load() != 0; ++spins) {
    if (spins < kReleaseSpins) continue;
    if (is_cut_off_) return;
    if (has_ended() || loop_.clock().now() > deadline) {
      cut_off();  // with RDMA, the hardware refuses the server from now on
      return;     // the slot is not used again
    }
    loop_.clock().sleep(kReleasePause);
  }
  const std::lock_guard lock(mutex_);
  free_slots_.push_back(index);
}

}  // namespace precis
