// The client's end of an admitted connection: its control stream, its bulk socket, and the memory
// that it has exposed. Used on the loop's thread, except where any thread is named.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/net/control_stream.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/pages.h"
#include "cachesvc/net/region_table.h"
#include "cachesvc/net/shared_window.h"
#include "client/src/transport/client_rdma.h"
#include "client/src/transport/client_transport.h"

namespace precis {

class ClientLink : public std::enable_shared_from_this<ClientLink> {
 public:
  ClientLink(EventLoop& loop, std::shared_ptr<ControlStream> control, std::unique_ptr<Socket> data);
  ~ClientLink();

  // Before anything else: serves the server's transfers, and shares the window where the bulk
  // socket can pass it.
  // `rdma`, where both sides have it, joins the server's; it may be null.
  void open(std::unique_ptr<ClientRdma> rdma = nullptr);
  void start(ClientConnection::Handlers handlers);
  void send(std::vector<std::byte> message);
  void close();  // this side's own end: no handler is called any more
  void end(const Status& why);
  std::string description() const;

  // Any thread. Shares the memory file `id` with the server, once; true once the server has mapped
  // it. Waits for that, but not on the loop's thread.
  bool share(std::uint64_t id, const Pages& pages);
  void unshare(std::uint64_t id);
  // Any thread. Null where no more are to be had, or no window is shared.
  SharedSlot* claim_slot(std::uint64_t region, std::uint32_t& index);
  // Any thread. Waits until the server has let go of the slot's region.
  void release_slot(std::uint32_t index);
  const std::shared_ptr<RegionTable>& regions() const { return regions_; }
  // Any thread. Null where the server can't reach memory by RDMA, or not yet.
  ClientRdma* rdma() const { return rdma_ && rdma_->is_joined() ? rdma_.get() : nullptr; }

 private:
  enum class Shared { kAsked, kMapped, kRefused };
  Status on_bulk_frame(const BulkHeader& header);
  void serve_pull(const BulkHeader& header);
  Status on_rdma_turn(Bytes body);
  void on_control_frame(const FrameHeader& header, std::vector<std::byte> body);
  void hand_out();
  void on_data_end(const Status& why);
  bool has_ended() const;  // any thread: the server has closed the bulk socket
  void shut();

  EventLoop& loop_;
  const std::shared_ptr<ControlStream> control_;
  const std::shared_ptr<DataStream> data_;
  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  const bool is_unix_;
  ClientConnection::Handlers handlers_;
  bool over_ = false;
  std::unique_ptr<EventLoop::Timer> data_ended_;  // until the control socket ends as well

  std::uint64_t pushes_received_ = 0;
  struct Held {
    std::uint64_t after_bulk;
    std::vector<std::byte> body;
  };
  std::deque<Held> held_;  // messages whose bulk bytes are on their way

  std::unique_ptr<Pages> window_;     // null where nothing can be shared
  std::unique_ptr<ClientRdma> rdma_;  // null where there is none; goes before the window
  std::mutex mutex_;
  std::condition_variable answered_;
  std::unordered_map<std::uint64_t, Shared> shared_;  // guarded by mutex_, as all below
  std::vector<std::uint32_t> free_slots_;
  bool no_answers_ = false;  // the link is over
};

}  // namespace precis
