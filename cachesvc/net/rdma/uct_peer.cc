#include "cachesvc/net/rdma/uct_device.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace precis {
namespace {

// UCX reads an address without knowing its length. If a peer sends a short address, UCX reads zeros
// after it.
constexpr std::size_t kPadding = 4096;

template <typename Address>
const Address* padded(std::string& bytes) {
  bytes.resize(bytes.size() + kPadding);
  return reinterpret_cast<const Address*>(bytes.data());
}

}  // namespace

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

}  // namespace precis
