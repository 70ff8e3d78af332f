#include "client/src/transport/client_link.h"

#include <poll.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

using std::chrono::steady_clock;

// How long a server may take to map a buffer before the stream is used instead.
constexpr std::chrono::seconds kShareTimeout{2};
// How long the end of an Exposure waits for a server that neither lets go nor goes.
constexpr std::chrono::seconds kReleaseTimeout{10};
// The same of RDMA, which this side can end by itself.
constexpr std::chrono::seconds kRdmaReleaseTimeout{1};
constexpr int kReleaseSpins = 2000;
constexpr std::chrono::microseconds kReleasePause{50};
// The two sockets of a server that closes or dies end at most this far apart.
constexpr std::chrono::seconds kEndsApartMax{1};
// What this side has sent may wait so long for the server's socket when the link closes.
constexpr std::chrono::milliseconds kCloseTimeout{200};

}  // namespace

ClientLink::ClientLink(EventLoop& loop, std::shared_ptr<ControlStream> control,
                       std::unique_ptr<Socket> data)
    : loop_(loop),
      control_(std::move(control)),
      data_(std::make_shared<DataStream>(loop, std::move(data))),
      is_unix_(data_->socket().is_unix()) {}

ClientLink::~ClientLink() { shut(); }

void ClientLink::open(std::unique_ptr<ClientRdma> rdma) {
  const std::weak_ptr<ClientLink> weak = weak_from_this();
  data_->start({
      .on_frame = [weak](const BulkHeader& header, Descriptor) -> Status {
        const auto link = weak.lock();
        return link ? link->on_bulk_frame(header) : Status::canceled("the link is over");
      },
      .place = [regions = regions_](const BulkHeader& header,
                                    std::size_t done) -> DataStream::Place {
        auto access =
            regions->access(header.region, header.offset + done, header.size_bytes - done);
        if (!access.ok()) return {};  // taken back: thrown away
        const MutableBytes bytes = access->bytes();
        return {bytes, std::make_shared<RegionTable::Access>(std::move(*access))};
      },
      .on_data =
          [weak](const BulkHeader&) {
            const auto link = weak.lock();
            if (!link) return;
            ++link->pushes_received_;
            link->hand_out();
          },
      .on_end =
          [weak](const Status& why) {
            if (const auto link = weak.lock()) link->on_data_end(why);
          },
  });
  auto window = is_unix_ ? Pages::make_shared(kWindowBytes)
                : rdma   ? Pages::make_private(kWindowBytes)
                         : Status::unsupported("no Unix socket");
  if (!window.ok()) return;
  window_ = std::move(*window);
  for (std::uint32_t i = limits::kSharedSlotsMax; i > 0; --i) free_slots_.push_back(i - 1);
  if (is_unix_) {
    share(kWindowBuffer, *window_);
  } else {
    rdma_ = std::move(rdma);
    control_->send(FrameKind::kRdma, encode(rdma_->offer()));
  }
}

// The control socket says what the server sent before it went, so its end is waited for a while.
void ClientLink::on_data_end(const Status& why) {
  if (over_) return;
  data_ended_ = loop_.after(kEndsApartMax, [this, why] {
    const auto fired = std::move(data_ended_);  // lives until the end of its own call
    end(why);
  });
}

void ClientLink::start(ClientConnection::Handlers handlers) {
  handlers_ = std::move(handlers);
  if (over_) return;
  const std::weak_ptr<ClientLink> weak = weak_from_this();
  control_->start({.on_frame =
                       [weak](const FrameHeader& header, std::vector<std::byte> body) {
                         const auto link = weak.lock();
                         if (link) link->on_control_frame(header, std::move(body));
                       },
                   .on_end =
                       [weak](const Status& why) {
                         if (const auto link = weak.lock()) link->end(why);
                       }});
}

void ClientLink::on_control_frame(const FrameHeader& header, std::vector<std::byte> body) {
  if (over_) return;
  if (header.kind == FrameKind::kRdma) {
    if (const Status status = on_rdma_turn(body); !status.ok()) end(status);
    return;
  }
  if (header.kind != FrameKind::kMessage) {
    return end(Status::invalid("the server sent a frame of kind " +
                               std::to_string(static_cast<int>(header.kind)) +
                               " after its welcome"));
  }
  held_.push_back({header.after_bulk, std::move(body)});
  hand_out();
}

Status ClientLink::on_rdma_turn(Bytes body) {
  PRECIS_ASSIGN(const RdmaTurn answer, decode_rdma_turn(body));
  if (!rdma_) return Status::invalid("the server answered an RDMA turn that was not made");
  auto ready = rdma_->join(answer, window_->bytes());
  if (ready.ok()) control_->send(FrameKind::kRdma, encode(*ready));
  return {};  // without it bytes go by the stream
}

void ClientLink::hand_out() {
  while (!held_.empty() && held_.front().after_bulk <= pushes_received_ && !over_) {
    auto body = std::move(held_.front().body);
    held_.pop_front();
    const auto on_message = handlers_.on_message;
    if (on_message) on_message(std::move(body));
  }
}

Status ClientLink::on_bulk_frame(const BulkHeader& header) {
  switch (header.kind) {
    case BulkKind::kPush: return {};
    case BulkKind::kPull: serve_pull(header); return {};
    case BulkKind::kShared: {
      const std::lock_guard lock(mutex_);
      shared_[header.id] = header.offset == 1 ? Shared::kMapped : Shared::kRefused;
      answered_.notify_all();
      return {};
    }
    default: return Status::invalid("a server sends no such bulk frame");
  }
}

void ClientLink::serve_pull(const BulkHeader& header) {
  const auto end_transfer = [data = data_, id = header.id](bool whole) {
    data->send({.header = {BulkKind::kEnd, 0, id, 0, whole ? 0u : 1u}, .data = {}, .first = true});
  };
  MutableBytes bytes;
  {
    const auto access = regions_->access(header.region, header.offset, header.size_bytes);
    if (!access.ok()) return end_transfer(false);
    bytes = access->bytes();
  }
  // The region may be taken back before all of it is sent, so leave to read it is asked for each
  // piece.
  auto hold = [regions = regions_, header]() -> std::shared_ptr<void> {
    auto access = regions->access(header.region, header.offset, header.size_bytes);
    if (!access.ok()) return nullptr;
    return std::make_shared<RegionTable::Access>(std::move(*access));
  };
  data_->send({.header = {BulkKind::kData, header.size_bytes, header.id, 0, 0},
               .data = {bytes},
               .hold = std::move(hold),
               .sent = end_transfer});
}

void ClientLink::send(std::vector<std::byte> message) {
  if (over_) return;
  if (message.size() > limits::kMessageBytesMax) {
    return end(Status::invalid("this side's message of " + std::to_string(message.size()) +
                               " B exceeds the limit of " +
                               std::to_string(limits::kMessageBytesMax) + " B"));
  }
  control_->send(FrameKind::kMessage, std::move(message));
}

void ClientLink::close() {
  handlers_ = {};
  shut();
}

void ClientLink::end(const Status& why) {
  if (over_) return;
  const auto self = shared_from_this();
  shut();
  loop_.post([self, why] {
    if (const auto on_closed = std::exchange(self->handlers_, {}).on_closed) on_closed(why);
  });
}

void ClientLink::shut() {
  if (std::exchange(over_, true)) return;
  data_ended_.reset();
  {
    const std::lock_guard lock(mutex_);
    no_answers_ = true;
    answered_.notify_all();
  }
  if (rdma_) rdma_->close();
  data_->close();
  control_->close(kCloseTimeout);
}

std::string ClientLink::description() const { return data_->socket().kind(); }

// ---- shared memory: any thread ------------------------------------------------------------------

bool ClientLink::share(std::uint64_t id, const Pages& pages) {
  if (window_ == nullptr || pages.descriptor() < 0) return false;
  std::unique_lock lock(mutex_);
  const bool is_new = shared_.emplace(id, Shared::kAsked).second;
  if (is_new) {
    lock.unlock();
    data_->send({.header = {BulkKind::kShare, 0, id, 0, pages.bytes().size()},
                 .data = {},
                 .pass = pages.descriptor()});
    // The answer is waited for; a lent loop would look for it later.
    if (!loop_.on_loop_thread()) loop_.post([&loop = loop_] { loop.expect(); });
    lock.lock();
  }
  if (!loop_.on_loop_thread()) {
    answered_.wait_for(lock, kShareTimeout,
                       [&] { return no_answers_ || shared_[id] != Shared::kAsked; });
  }
  return shared_[id] == Shared::kMapped;
}

void ClientLink::unshare(std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    if (shared_.erase(id) == 0 || no_answers_) return;
  }
  data_->send({.header = {BulkKind::kUnshare, 0, id, 0, 0}, .data = {}});
}

SharedSlot* ClientLink::claim_slot(std::uint64_t region, std::uint32_t& index) {
  const std::lock_guard lock(mutex_);
  const auto window = shared_.find(kWindowBuffer);
  const bool is_mapped = window != shared_.end() && window->second == Shared::kMapped;
  if (free_slots_.empty() || (!is_mapped && rdma() == nullptr)) return nullptr;
  index = free_slots_.back();
  free_slots_.pop_back();
  SharedSlot& slot = window_slots(window_->bytes())[index];
  slot.open.store(region);
  return &slot;
}

bool ClientLink::has_ended() const {
  pollfd wait{data_->socket().descriptor(), POLLRDHUP, 0};
  return ::poll(&wait, 1, 0) > 0 && (wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void ClientLink::release_slot(std::uint32_t index) {
  SharedSlot& slot = window_slots(window_->bytes())[index];
  slot.open.store(0);
  const auto deadline = steady_clock::now() + (rdma_ ? kRdmaReleaseTimeout : kReleaseTimeout);
  for (int spins = 0; slot.active.load() != 0; ++spins) {
    if (spins < kReleaseSpins) continue;
    if (rdma_ && rdma_->is_closed()) return;
    if (has_ended() || steady_clock::now() > deadline) {
      if (rdma_) rdma_->close();  // from here on the hardware lets nobody in
      return;                     // nor is the slot used again
    }
    std::this_thread::sleep_for(kReleasePause);
  }
  const std::lock_guard lock(mutex_);
  free_slots_.push_back(index);
}

}  // namespace precis
