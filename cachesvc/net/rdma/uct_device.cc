#include "cachesvc/net/rdma/uct_device.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "cachesvc/net/rdma/rdma_choice.h"

namespace precis {
namespace {

// Only transports with reliable connections: a connection needs the other side's consent, and the
// hardware executes gets and puts. `dc` and `ud` accept anyone who knows their number.
const std::vector<std::string> kTransports{"rc_mlx5", "rc_verbs"};
constexpr std::size_t kTransferBytesMax = 4u << 20;
// The most rounds for which a closing device waits for its operations.
constexpr int kCloseRoundsMax = 1'000'000;

// Returns the names of a component's memory domains, or none if its name is not `wanted`.
std::vector<std::string> domains_of(const Uct& uct, uct_component_h component,
                                    const std::string& wanted) {
  uct_component_attr_t attributes{};
  attributes.field_mask =
      UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct.uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  if (attributes.name != wanted || domains.empty()) return {};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct.uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<std::string> names;
  for (const auto& domain : domains) names.emplace_back(domain.md_name);
  return names;
}

Result<uct_md_h> open_md(const Uct& uct, uct_component_h component, const std::string& name) {
  uct_md_config_t* config = nullptr;
  PRECIS_TRY(uct.to_status(uct.uct_md_config_read(component, nullptr, nullptr, &config), name));
  uct_md_h domain = nullptr;
  const ucs_status_t opened = uct.uct_md_open(component, name.c_str(), config, &domain);
  uct.uct_config_release(config);
  PRECIS_TRY(uct.to_status(opened, "open " + name));
  return domain;
}

// Returns the devices and transports of one memory domain.
std::vector<UctDevice::Where> resources_of(const Uct& uct, uct_component_h component,
                                           const std::string& domain_name) {
  const auto domain = open_md(uct, component, domain_name);
  if (!domain.ok()) return {};
  uct_tl_resource_desc_t* list = nullptr;
  unsigned count = 0;
  std::vector<UctDevice::Where> found;
  if (uct.uct_md_query_tl_resources(*domain, &list, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) {
      found.push_back({component, domain_name, list[i].tl_name, list[i].dev_name});
    }
    uct.uct_release_tl_resource_list(list);
  }
  uct.uct_md_close(*domain);
  return found;
}

}  // namespace

Result<std::vector<UctDevice::Where>> UctDevice::find(const std::string& component,
                                                      const std::vector<std::string>& transports) {
  PRECIS_ASSIGN(const Uct* uct, Uct::load());
  uct_component_h* list = nullptr;
  unsigned count = 0;
  PRECIS_TRY(uct->to_status(uct->uct_query_components(&list, &count), "look for devices"));
  std::vector<Where> all;
  for (unsigned c = 0; c < count; ++c) {
    for (const std::string& domain : domains_of(*uct, list[c], component)) {
      std::ranges::move(resources_of(*uct, list[c], domain), std::back_inserter(all));
    }
  }
  uct->uct_release_component_list(list);  // the list only holds handles, which stay valid
  std::vector<Where> found;
  for (const std::string& transport : transports) {
    std::ranges::copy_if(all, std::back_inserter(found),
                         [&](const Where& where) { return where.transport == transport; });
  }
  return found;
}

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open(EventLoop* loop, const std::string& choice) {
  const RdmaChoice wanted = parse_rdma(choice);
  if (!wanted.is_on) return std::unique_ptr<RdmaDevice>();
  PRECIS_ASSIGN(const auto found, UctDevice::find("ib", kTransports));
  std::string tried;
  for (const UctDevice::Where& where : found) {
    if (!wanted.names(where.device)) continue;
    auto device = UctDevice::open(loop, where);
    if (device.ok() && !(*device)->checks_keys()) {
      device = Status::unsupported(where.transport + " on " + where.device + " checks no keys");
    }
    if (device.ok()) return std::unique_ptr<RdmaDevice>(std::move(*device));
    tried += (tried.empty() ? "" : "; ") + device.status().message();
  }
  std::string there;
  for (const UctDevice::Where& where : found) there += " " + where.device;
  return Status::unsupported("rdma is '" + choice + "', but UCX has no device for it" +
                             (tried.empty() ? "" : " (" + tried + ")") + "; it finds" +
                             (there.empty() ? " none: is it built with verbs?" : there));
}

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open_software(EventLoop* loop) {
  PRECIS_ASSIGN(const auto found, UctDevice::find("cma", {"cma"}));
  if (found.empty()) return Status::unsupported("UCX has no cma here");
  PRECIS_ASSIGN(auto device, UctDevice::open(loop, found.front()));
  return std::unique_ptr<RdmaDevice>(std::move(device));
}

Result<std::unique_ptr<UctDevice>> UctDevice::open(EventLoop* loop, const Where& where) {
  PRECIS_ASSIGN(const Uct* uct, Uct::load());
  std::unique_ptr<UctDevice> device(new UctDevice(*uct, loop));
  const Status started = device->start(where);
  PRECIS_TRY(started.with_context(where.transport + " on " + where.device));
  return device;
}

Status UctDevice::start(const Where& where) {
  component_ = where.component;
  PRECIS_ASSIGN(domain_, open_md(uct_, component_, where.domain));
  PRECIS_TRY(uct_.to_status(uct_.uct_md_query(domain_, &domain_attributes_), "query the device"));
  PRECIS_TRY(open_interface(where));
  description_ = where.transport + " on " + where.device + ", host" +
                 (reaches(MemorySpace::kDevice) ? " and device" : "") + " memory (" + uct_.library +
                 ", built for UCX " + UCT_VERNO_STRING + ")";
  if (loop_ != nullptr) poll();
  return {};
}

Status UctDevice::open_interface(const Where& where) {
  PRECIS_TRY(uct_.to_status(uct_.ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_),
                            "start UCX"));
  PRECIS_TRY(uct_.to_status(uct_.uct_worker_create(async_, UCS_THREAD_MODE_SERIALIZED, &worker_),
                            "start UCX"));
  uct_iface_config_t* config = nullptr;
  PRECIS_TRY(uct_.to_status(
      uct_.uct_md_iface_config_read(domain_, where.transport.c_str(), nullptr, nullptr, &config),
      "read UCX's configuration"));
  // By default, UCX does not get fewer bytes than a line of its queue has. Not every transport has
  // this option.
  uct_.uct_config_modify(config, "IB_TX_INLINE_RESP", "0");
  uct_iface_params_t params{};
  params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                      UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                      UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
  params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
  params.mode.device.tl_name = where.transport.c_str();
  params.mode.device.dev_name = where.device.c_str();
  // A peer's failure ends its operations; this side needs no other notice.
  params.err_handler = [](void*, uct_ep_h, ucs_status_t) { return UCS_OK; };
  const ucs_status_t opened = uct_.uct_iface_open(domain_, worker_, &params, config, &interface_);
  uct_.uct_config_release(config);
  PRECIS_TRY(uct_.to_status(opened, "open it"));
  PRECIS_TRY(uct_.to_status(uct_.uct_iface_query(interface_, &attributes_), "query it"));
  const auto& cap = attributes_.cap;
  constexpr std::uint64_t kNeeded = UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY;
  if ((cap.flags & kNeeded) != kNeeded || cap.get.min_zcopy > 1 || cap.put.min_zcopy > 1) {
    return Status::unsupported("it can't get and put " +
                               std::to_string(std::max(cap.get.min_zcopy, cap.put.min_zcopy)) +
                               " B or less");
  }
  transfer_bytes_max_ = std::min({cap.get.max_zcopy, cap.put.max_zcopy, kTransferBytesMax});
  has_events_ = (cap.event_flags & UCT_IFACE_FLAG_EVENT_SEND_COMP) != 0;
  uct_iface_progress_enable(interface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
  return {};
}

UctDevice::~UctDevice() {
  poller_.reset();
  for (int round = 0; interface_ != nullptr && round < kCloseRoundsMax; ++round) {
    progress();
    const std::lock_guard lock(mutex_);
    if (under_way_ == 0 && waiting_.empty() && over_.empty()) break;
  }
  destroy_closed();
  if (interface_ != nullptr) uct_.uct_iface_close(interface_);
  if (worker_ != nullptr) uct_.uct_worker_destroy(worker_);
  if (async_ != nullptr) uct_.ucs_async_context_destroy(async_);
  if (domain_ != nullptr) uct_.uct_md_close(domain_);
  if (own_event_ >= 0) ::close(own_event_);
}

bool UctDevice::reaches(MemorySpace space) const {
  const auto type = space == MemorySpace::kHost ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
  const auto& cap = domain_attributes_.cap;
  return ((registers() ? cap.reg_mem_types : cap.access_mem_types) & UCS_BIT(type)) != 0;
}

Result<std::unique_ptr<RdmaMemory>> UctDevice::register_memory(MutableBytes memory,
                                                               MemorySpace space) {
  if (!reaches(space)) {
    return Status::unsupported(
        "UCX can't register device memory: it needs a build with CUDA, and "
        "the driver's peer memory");
  }
  const std::lock_guard lock(mutex_);
  uct_mem_h handle = nullptr;
  const std::string what = "register " + std::to_string(memory.size()) + " B for RDMA";
  // On a device with a loop, only this side begins transfers, so remote access is not needed. Older
  // versions of UCX allow it regardless.
  const unsigned flags = loop_ != nullptr
                             ? UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE
                             : UCT_MD_MEM_ACCESS_RMA;
  if (registers()) {
    PRECIS_TRY(uct_.to_status(
        uct_.uct_md_mem_reg(domain_, memory.data(), memory.size(), flags, &handle), what));
  }
  std::string key;  // empty if this side begins all transfers
  ucs_status_t packed = UCS_OK;
  if (loop_ == nullptr) {
    key.assign(1 + domain_attributes_.rkey_packed_size, kKeyMark);
    if (key.size() > 1) packed = uct_.uct_md_mkey_pack(domain_, handle, key.data() + 1);
  }
  if (packed != UCS_OK) {
    uct_.uct_md_mem_dereg(domain_, handle);
    return uct_.to_status(packed, what);
  }
  return std::unique_ptr<RdmaMemory>(std::make_unique<UctMemory>(*this, handle, std::move(key)));
}

Result<std::shared_ptr<RdmaPeer>> UctDevice::make_peer() {
  auto peer = std::make_shared<UctPeer>(*this);
  PRECIS_TRY(peer->open());
  // Operations in progress have their own references, so the owner's release must close it.
  return std::shared_ptr<RdmaPeer>(peer.get(), [peer](RdmaPeer*) { peer->close(); });
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

UctMemory::~UctMemory() {
  const std::lock_guard lock(device_.mutex_);
  if (handle_ != nullptr) device_.uct_.uct_md_mem_dereg(device_.domain_, handle_);
}

}  // namespace precis
