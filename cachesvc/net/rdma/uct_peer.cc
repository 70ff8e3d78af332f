// Connections, their operations in progress, and the loop's work for them.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "cachesvc/net/rdma/uct_device.h"

namespace precis {
namespace {

// UCX reads an address without knowing its length. If a lying peer sends a short one, UCX reads
// zeros.
constexpr std::size_t kPadding = 4096;

template <typename Address>
const Address* padded(std::string& bytes) {
  bytes.resize(bytes.size() + kPadding);
  return reinterpret_cast<const Address*>(bytes.data());
}

}  // namespace

Result<std::shared_ptr<RdmaPeer>> UctDevice::make_peer() {
  auto peer = std::make_shared<UctPeer>(*this);
  PRECIS_TRY(peer->open());
  // Operations in progress have their own references, so the owner's release must close it.
  return std::shared_ptr<RdmaPeer>(peer.get(), [peer](RdmaPeer*) { peer->close(); });
}

Status UctPeer::open() {
  const std::lock_guard lock(device_.mutex_);
  const Uct& uct = device_.uct_;
  const uct_iface_attr_t& attributes = device_.attributes_;
  address_.device.resize(attributes.device_addr_len);
  PRECIS_TRY(uct.to_status(
      uct.uct_iface_get_device_address(
          device_.interface_, reinterpret_cast<uct_device_addr_t*>(address_.device.data())),
      "get the device's address"));
  if (!connects_to_endpoint()) {
    address_.endpoint.resize(attributes.iface_addr_len);
    return uct.to_status(
        uct.uct_iface_get_address(device_.interface_,
                                  reinterpret_cast<uct_iface_addr_t*>(address_.endpoint.data())),
        "get the interface's address");
  }
  uct_ep_params_t params{};
  params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
  params.iface = device_.interface_;
  PRECIS_TRY(uct.to_status(uct.uct_ep_create(&params, &endpoint_), "make a connection"));
  address_.endpoint.resize(attributes.ep_addr_len);
  return uct.to_status(
      uct.uct_ep_get_address(endpoint_, reinterpret_cast<uct_ep_addr_t*>(address_.endpoint.data())),
      "get the connection's address");
}

Status UctPeer::connect(const RdmaAddress& peer) {
  const std::lock_guard lock(device_.mutex_);
  if (closed_) return Status::unavailable("the connection is closed");
  const Uct& uct = device_.uct_;
  // The addresses of one kind of device have one size.
  if (peer.endpoint.size() != address_.endpoint.size()) {
    return Status::invalid("the peer's address is of another kind of device");
  }
  std::string device = peer.device, endpoint = peer.endpoint;
  const auto* device_address = padded<uct_device_addr_t>(device);
  const auto* interface = connects_to_endpoint() ? nullptr : padded<uct_iface_addr_t>(endpoint);
  if (!uct.uct_iface_is_reachable(device_.interface_, device_address, interface)) {
    return Status::invalid("the peer's device is on another network");
  }
  if (interface == nullptr) {
    return uct.to_status(
        uct.uct_ep_connect_to_ep(endpoint_, device_address, padded<uct_ep_addr_t>(endpoint)),
        "connect");
  }
  uct_ep_params_t params{};
  params.field_mask =
      UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
  params.iface = device_.interface_;
  params.dev_addr = device_address;
  params.iface_addr = interface;
  return uct.to_status(uct.uct_ep_create(&params, &endpoint_), "connect");
}

void UctPeer::submit(bool is_get, MutableBytes local, const RdmaMemory& memory, RdmaRemote remote,
                     RdmaPeer::Done done) {
  auto operation = std::make_unique<UctOperation>();
  operation->peer = shared_from_this();
  operation->is_get = is_get;
  operation->local = {local.data(), local.size(), static_cast<const UctMemory&>(memory).handle(), 0,
                      1};
  operation->remote = remote.address;
  operation->done = std::move(done);
  {
    const std::lock_guard lock(device_.mutex_);
    std::string key = remote.key;
    if (closed_ || endpoint_ == nullptr) {
      operation->failed = Status::unavailable("the connection is closed");
    } else if (key.size() != 1 + device_.domain_attributes_.rkey_packed_size ||
               key.front() != kKeyMark) {
      operation->failed = Status::invalid("a key of " + std::to_string(key.size()) +
                                          " B is none of the peer's device");
    } else if (key.size() > 1) {
      key.resize(key.size() + kPadding);
      operation->failed = device_.uct_.to_status(
          device_.uct_.uct_rkey_unpack(device_.component_, key.data() + 1, &operation->key),
          "read a key");
      operation->has_key = operation->failed.ok();
    }
    device_.begin(std::move(operation));
  }
  device_.loop_->kick();
}

void UctPeer::close() {
  const std::lock_guard lock(device_.mutex_);
  if (std::exchange(closed_, true)) return;
  std::erase_if(device_.waiting_, [&](auto& operation) {
    if (operation->peer.get() != this) return false;
    operation->failed = Status::canceled("the connection was closed");
    device_.over_.push_back(std::move(operation));
    return true;
  });
  if (endpoint_ == nullptr) return;
  if (under_way_ > 0) {
    // Ends the operations soon, if the device can.
    uct_ep_flush(endpoint_, UCT_FLUSH_FLAG_CANCEL, nullptr);
    device_.closing_.push_back(shared_from_this());
  } else {
    device_.uct_.uct_ep_destroy(std::exchange(endpoint_, nullptr));
  }
}

// ---- operations in progress ---------------------------------------------------------------------

void UctDevice::begin(std::unique_ptr<UctOperation> operation) {
  if (!operation->failed.ok()) return over_.push_back(std::move(operation));
  if (!waiting_.empty() || !post(*operation)) return waiting_.push_back(std::move(operation));
  static_cast<void>(operation.release());  // owned by UCX, or by over_ already
}

bool UctDevice::post(UctOperation& operation) {
  static_assert(std::is_standard_layout_v<uct_completion_t>);
  operation.completion.count = 1;
  operation.completion.status = UCS_OK;
  // UCX calls it with mutex_ held, from progress() or from this function.
  operation.completion.func = [](uct_completion_t* completion) {
    auto* over = reinterpret_cast<UctOperation*>(completion);  // completion is its first member
    over->peer->device_.end(over, completion->status);
  };
  UctPeer& peer = *operation.peer;
  ++under_way_;
  ++peer.under_way_;
  const auto call = operation.is_get ? uct_ep_get_zcopy : uct_ep_put_zcopy;
  const ucs_status_t status = call(peer.endpoint_, &operation.local, 1, operation.remote,
                                   operation.key.rkey, &operation.completion);
  if (status == UCS_INPROGRESS) return true;
  if (status == UCS_ERR_NO_RESOURCE) {
    --under_way_;
    --peer.under_way_;
    return false;
  }
  end(&operation, status);
  return true;
}

void UctDevice::end(UctOperation* operation, ucs_status_t status) {
  --under_way_;
  --operation->peer->under_way_;
  operation->failed = uct_.to_status(status, operation->is_get ? "RDMA get" : "RDMA put");
  over_.emplace_back(operation);
}

void UctDevice::destroy_closed() {
  std::erase_if(closing_, [&](const auto& peer) {
    if (peer->under_way_ > 0) return false;
    uct_.uct_ep_destroy(std::exchange(peer->endpoint_, nullptr));
    return true;
  });
}

// ---- the loop -----------------------------------------------------------------------------------

void UctDevice::poll() {
  int descriptor = -1;
  if (has_events_) {
    has_events_ = uct_.uct_iface_event_fd_get(interface_, &descriptor) == UCS_OK;
  }
  if (!has_events_) descriptor = own_event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  poller_ = loop_->add_poller({.fd = descriptor,
                               .progress = [this] { return progress(); },
                               .arm = [this] { return arm(); }});
}

unsigned UctDevice::progress() {
  unsigned done = 0;
  {
    const std::lock_guard lock(mutex_);
    if (under_way_ > 0 || !closing_.empty()) done += uct_worker_progress(worker_);
    while (!waiting_.empty() && post(*waiting_.front())) {
      static_cast<void>(waiting_.front().release());
      waiting_.pop_front();
      ++done;
    }
    destroy_closed();
  }
  return done + tell();
}

unsigned UctDevice::tell() {
  std::vector<std::unique_ptr<UctOperation>> over;
  {
    const std::lock_guard lock(mutex_);
    over.swap(over_);
    for (const auto& operation : over) {
      if (operation->has_key) uct_.uct_rkey_release(component_, &operation->key);
    }
  }
  for (const auto& operation : over) operation->done(std::move(operation->failed));
  return static_cast<unsigned>(over.size());
}

// Without operations in progress, no event can come, so the loop may block.
bool UctDevice::arm() {
  const std::lock_guard lock(mutex_);
  if (!over_.empty() || !waiting_.empty() || !closing_.empty()) return false;
  if (under_way_ == 0) return true;
  return has_events_ && uct_.uct_iface_event_arm(interface_, UCT_EVENT_SEND_COMP) == UCS_OK;
}

}  // namespace precis
