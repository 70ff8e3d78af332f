// One device opened with UCT: its memory domain, one interface, and its connections.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/rdma/uct.h"

namespace precis {

class UctMemory;
class UctPeer;

// The first byte of every key, so that no key is empty: UCX's own keys are empty for the copy
// between processes.
inline constexpr char kKeyMark = 'K';

// One get or put. UCX writes to it, so its address must not change until it is over.
struct UctOperation {
  uct_completion_t completion{};  // first member: UCX returns its address
  std::shared_ptr<UctPeer> peer;  // closes only when no operation is in progress
  bool is_get = false;
  uct_iov_t local{};
  std::uint64_t remote = 0;
  uct_rkey_bundle_t key{};
  bool has_key = false;
  Status failed;  // its error, set before it begins or when it ends
  RdmaPeer::Done done;
};

class UctDevice final : public RdmaDevice {
 public:
  struct Where {
    uct_component_h component;
    std::string domain, transport, device;  // "mlx5_0", "rc_mlx5", "mlx5_0:1"
  };
  static Result<std::unique_ptr<UctDevice>> open(EventLoop* loop, const Where& where);
  // Returns the devices of `component` for each of `transports`, in that order: best first.
  static Result<std::vector<Where>> find(const std::string& component,
                                         const std::vector<std::string>& transports);
  ~UctDevice() override;

  Result<std::unique_ptr<RdmaMemory>> register_memory(MutableBytes memory,
                                                      MemorySpace space) override;
  Result<std::shared_ptr<RdmaPeer>> make_peer() override;
  bool reaches(MemorySpace space) const override;
  bool checks_keys() const { return (domain_attributes_.cap.flags & UCT_MD_FLAG_NEED_RKEY) != 0; }
  std::size_t transfer_bytes_max() const override { return transfer_bytes_max_; }
  const std::string& description() const override { return description_; }

 private:
  friend class UctMemory;
  friend class UctPeer;
  bool registers() const { return (domain_attributes_.cap.flags & UCT_MD_FLAG_REG) != 0; }
  explicit UctDevice(const Uct& uct, EventLoop* loop) : uct_(uct), loop_(loop) {}
  Status start(const Where& where);
  Status open_interface(const Where& where);
  void poll();

  // Callers hold mutex_ for the functions below.
  void begin(std::unique_ptr<UctOperation> operation);
  bool post(UctOperation& operation);  // false: no room at present
  void end(UctOperation* operation, ucs_status_t status);
  void destroy_closed();

  // Called on the loop's thread.
  unsigned progress();
  bool arm();
  unsigned tell();

  const Uct& uct_;
  EventLoop* const loop_;
  uct_component_h component_ = nullptr;
  ucs_async_context_t* async_ = nullptr;
  uct_md_h domain_ = nullptr;
  uct_md_attr_t domain_attributes_{};
  uct_worker_h worker_ = nullptr;
  uct_iface_h interface_ = nullptr;
  uct_iface_attr_t attributes_{};
  std::size_t transfer_bytes_max_ = 0;
  std::string description_;
  bool has_events_ = false;
  int own_event_ = -1;  // used if the interface has no event descriptor

  std::mutex mutex_;  // serializes calls of UCX and guards all members below
  std::deque<std::unique_ptr<UctOperation>> waiting_;  // until there is room
  std::size_t under_way_ = 0;
  std::vector<std::unique_ptr<UctOperation>> over_;  // done() not called yet
  std::vector<std::shared_ptr<UctPeer>> closing_;    // with operations in progress
  std::unique_ptr<EventLoop::Watch> poller_;
};

class UctMemory final : public RdmaMemory {
 public:
  UctMemory(UctDevice& device, uct_mem_h handle, std::string key)
      : device_(device), handle_(handle), key_(std::move(key)) {}
  ~UctMemory() override;
  const std::string& key() const override { return key_; }
  uct_mem_h handle() const { return handle_; }

 private:
  UctDevice& device_;
  const uct_mem_h handle_;
  const std::string key_;
};

// Shared by its owner and by its operations in progress.
class UctPeer final : public RdmaPeer, public std::enable_shared_from_this<UctPeer> {
 public:
  explicit UctPeer(UctDevice& device) : device_(device) {}
  Status open();
  const RdmaAddress& address() const override { return address_; }
  Status connect(const RdmaAddress& peer) override;
  void get(MutableBytes into, const RdmaMemory& local, RdmaRemote from, Done done) override {
    submit(true, into, local, from, std::move(done));
  }
  void put(Bytes from, const RdmaMemory& local, RdmaRemote to, Done done) override {
    const MutableBytes bytes(const_cast<std::byte*>(from.data()), from.size());  // only read
    submit(false, bytes, local, to, std::move(done));
  }
  void close() override;

 private:
  friend class UctDevice;
  bool connects_to_endpoint() const {
    return (device_.attributes_.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP) != 0;
  }
  void submit(bool is_get, MutableBytes local, const RdmaMemory& memory, RdmaRemote remote,
              Done done);

  UctDevice& device_;
  RdmaAddress address_;
  uct_ep_h endpoint_ = nullptr;  // guarded by the device's mutex, like all members below
  std::size_t under_way_ = 0;
  bool closed_ = false;
};

}  // namespace precis
