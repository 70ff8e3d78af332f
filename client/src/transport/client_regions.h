// The client memory that a server may reach over one connection: the table of regions for bulk
// frames, the memory files that the server has mapped, and the memory that it may access by RDMA.
//
// Any thread, except where a comment names the loop's thread. Shared by the connection and its
// exposures; either may be destroyed first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/pages.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/region_table.h"
#include "cachesvc/net/shared_window.h"
#include "precis/greeting.h"

namespace precis {

class ClientRegions : public std::enable_shared_from_this<ClientRegions> {
 public:
  // `data`: the bulk socket. Null within one process, which needs only the table.
  ClientRegions(EventLoop& loop, std::shared_ptr<DataStream> data)
      : loop_(loop), data_(std::move(data)) {}

  // The loop's thread, before any other call. Serves the server's transfers, and shares the window
  // if the bulk socket can pass descriptors. Otherwise offers RDMA by `device`, which may be null.
  // Only the server makes RDMA transfers; this side can only end all of them together. `on_data` is
  // called when all bytes of a push have arrived.
  void open(std::shared_ptr<RdmaDevice> device, std::function<void()> on_data,
            std::function<void(Status)> on_end);
  // The loop's thread. Ends all access of the server, except to the slots of the window.
  void close();
  // The loop's thread. This side's first message of the RDMA handshake; empty if it has no RDMA to
  // offer.
  std::optional<RdmaTurn> rdma_offer() const;
  // The loop's thread. This side's answer to the server's message: from now on the server may reach
  // the window and registered memory. kUnavailable if the server does not offer RDMA.
  Result<RdmaTurn> join_rdma(const RdmaTurn& answer);

  const std::shared_ptr<RegionTable>& table() const { return table_; }
  // Whether the server can reach memory by RDMA now.
  bool has_rdma() const { return is_joined_.load(); }

  // Shares the memory file `id` with the server, once. Waits until the server has mapped it, except
  // on the loop's thread. False if the server has not mapped it.
  bool share(std::uint64_t id, const Pages& pages);
  void unshare(std::uint64_t id);
  // Takes a slot for the region; false if no slot is free, or no window is shared.
  bool claim_slot(std::uint64_t region, std::uint32_t& index);
  // Waits until the server has released the slot's region.
  void release_slot(std::uint32_t index);

 private:
  enum class Shared { kAsked, kMapped, kRefused };
  Status on_frame(const BulkHeader& header);
  void serve_pull(const BulkHeader& header);
  void cut_off();
  bool has_ended() const;  // whether the server has closed the bulk socket

  EventLoop& loop_;
  const std::shared_ptr<DataStream> data_;
  const std::shared_ptr<RegionTable> table_ = std::make_shared<RegionTable>(loop_.clock());
  std::unique_ptr<Pages> window_;       // null if nothing can be shared
  std::shared_ptr<RdmaDevice> device_;  // shared with registered memory
  std::unique_ptr<RdmaMemory> window_memory_;
  std::shared_ptr<RdmaPeer> peer_;  // null if there is no RDMA; destroyed before the window
  std::atomic<bool> is_joined_{false}, is_cut_off_{false};  // cut off: no more RDMA, for good
  std::mutex mutex_;
  std::condition_variable answered_;
  std::unordered_map<std::uint64_t, Shared> shared_;  // guarded by mutex_, as all below
  std::vector<std::uint32_t> free_slots_;
  bool is_closed_ = false;
};

}  // namespace precis
