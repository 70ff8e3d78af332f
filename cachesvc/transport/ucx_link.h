// One link over UCX, as either side has it: the endpoint, the sign of life beside it, ordered
// messages, and the queue of bulk transfers. UcxTransport makes it in the preface and keeps it
// until it ends; the Connection that users hold is a handle on it. Used on the loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/transport/bulk_stream.h"
#include "cachesvc/transport/bulk_transfer.h"
#include "cachesvc/transport/host_copy.h"
#include "cachesvc/transport/preface_io.h"
#include "cachesvc/transport/region_table.h"
#include "cachesvc/transport/transport.h"
#include "cachesvc/transport/ucx_worker.h"

namespace precis {

// How the chunks of a link's transfers are moved. Chosen once per link.
class BulkMeans {
 public:
  virtual ~BulkMeans() = default;
  virtual BulkQueue::Limits limits() const = 0;
  // Calls `ended` once, when the local memory of the chunk is at rest.
  virtual void move(BulkChunk chunk, BulkQueue::Ended ended) = 0;
  // As Connection::read_in_place().
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }
  // The link is over: ends what only waits for the peer. What UCX has in hand, UCX ends.
  virtual void lose(const Status&) {}
  // The client opens or closes a region (kExposed, kRevoke). Not OK where it need not tell.
  virtual Status on_region(const AmHeader& header);
  // The client drops the Pages of this id, which nothing under way is in need of.
  virtual void drop_pages(std::uint64_t) {}
  // The link is over, and this is what its end is known by to the peer: keeps it until nothing of
  // the peer's is in use any more.
  virtual void keep_until_quiet(std::unique_ptr<PrefaceSocket>) {}
  virtual std::string name() const = 0;
};

class UcxMessageBulk;

// Messages that have arrived, or are arriving, over all links of a transport.
struct UcxInbox {
  std::size_t bytes = 0;
  std::function<void()> on_arrival;  // called when `bytes` has grown
};

class UcxLink : public std::enable_shared_from_this<UcxLink> {
 public:
  struct Ids {
    std::uint64_t mine;   // in messages to this side
    std::uint64_t peers;  // in messages to the peer
  };
  // `on_end` is called once, when the link is over and no message for it is expected any more.
  static Result<std::shared_ptr<UcxLink>> make(EventLoop& loop, UcxWorker& worker, UcxInbox& inbox,
                                               Ids ids, const std::vector<std::byte>& peer_address,
                                               std::function<void()> on_end);
  ~UcxLink();

  // Client: calls `reached` on a turn of its own when UCX has a connection with the peer's, where
  // it is one that connects, or once the link is over without that; maybe never.
  void reach(std::function<void(const Status&)> reached);
  // Both sides: bulk bytes go over the socket that is the sign of life, large ones sent by
  // `senders`, which live until the link is over, or by the loop where that is null. Before watch()
  // and use_means().
  void use_stream(Executor* senders);
  bool streams() const { return streams_; }
  // From now on `socket` is the sign of life.
  void watch(std::unique_ptr<PrefaceSocket> socket);
  // Client: the server reaches this side's memory by one-sided operations, so it is told of every
  // region, and says itself when it has let go of one. Set before anybody shares the link.
  void announce_regions() { announces_ = true; }
  bool announces() const { return announces_; }
  void announce(std::uint64_t region, RegionTable::Access leave);
  void revoke(std::uint64_t region);
  // Client: tells a server that may have mapped these Pages that they go.
  void drop_pages(std::uint64_t id);
  // Client: the words by which a server on the same host reaches this side's memory.
  void use_window(std::unique_ptr<HostWindow> window);
  // Server: how transfers move; messages if never called.
  void use_means(std::unique_ptr<BulkMeans> means);
  // Why it is not the host copy, where it might have been; shows in description().
  void note_no_host_copy(std::string why) { no_host_copy_ = std::move(why); }

  // What Connection does.
  void start(Connection::Handlers handlers);
  void send(std::vector<std::byte> message);
  void bulk(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
            std::vector<MutableBytes> local, const Registration& registration, Completion done);
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region);
  std::size_t unsent_bytes() const { return unsent_bytes_; }
  std::size_t inbox_bytes() const { return inbox_bytes_; }
  std::optional<std::chrono::steady_clock::time_point> stalled_since() const {
    return queue_->stalled_since();
  }
  // The owner's own end: what was sent before still arrives, within a bound.
  void close();

  // The link is over at once: it broke, or its transport goes. No use of worker or loop afterwards,
  // but to call back.
  void end(const Status& reason);

  void on_active_message(const Result<AmHeader>& header, const UcxInbound& inbound);

  // For the means of bulk transfer.
  void send_am(AmHeader header, const std::vector<Bytes>& data, UcxDone done);
  // The same of a message of bulk bytes: over the stream where there is one.
  void send_bulk(AmHeader header, const std::vector<Bytes>& data, UcxDone done);
  // Does what the peer has sent so far.
  void progress();
  EventLoop& loop() { return loop_; }
  UcxWorker& worker() { return worker_; }
  ucp_ep_h endpoint() { return endpoint_; }
  bool over() const { return !ended_.ok(); }
  const std::shared_ptr<RegionTable>& regions() const { return regions_; }
  // Of a client whose server may be on the same host, else null. Set before anybody shares the
  // link.
  const std::shared_ptr<HostWindow>& window() const { return window_; }
  // How UCX reaches the peer: its lanes, in UCX's words.
  const std::string& lanes() const { return lanes_; }
  bool over_tcp() const;
  std::string description() const;

 private:
  struct Arrival {
    std::vector<std::byte> bytes;
    std::uint64_t count = 0;  // of messages
    bool complete = false;
  };

  UcxLink(EventLoop& loop, UcxWorker& worker, UcxInbox& inbox, Ids ids,
          std::function<void()> on_end);
  BulkMeans& moving();
  void flush();
  Status on_message(const AmHeader& header, const UcxInbound& inbound);
  void schedule_delivery();
  void deliver();

  EventLoop& loop_;
  UcxWorker& worker_;
  UcxInbox& all_inboxes_;  // used until the link is over
  const Ids ids_;
  std::function<void()> on_end_;
  std::function<void(ucs_status_t)> on_ucx_error_;
  ucp_ep_h endpoint_ = nullptr;
  std::string lanes_;
  std::string no_host_copy_;
  std::unique_ptr<PrefaceSocket> socket_;
  bool streams_ = false;
  Executor* senders_ = nullptr;
  std::unique_ptr<BulkStream> stream_;  // while the link lasts, once watched
  std::shared_ptr<HostWindow> window_;  // shared with the Exposures, which may outlive the link

  // Shared with the call under way, in which the user may destroy the Connection.
  std::shared_ptr<Connection::Handlers> handlers_;
  std::map<std::uint64_t, Arrival> inbox_;  // by number: arrivals may overtake each other
  std::size_t inbox_bytes_ = 0;
  std::uint64_t next_in_ = 1;
  std::uint64_t goodbye_in_ = 0;  // the peer's last number, 0 while it has said nothing
  bool delivery_scheduled_ = false;

  std::vector<std::vector<std::byte>> outbox_;  // of this turn of the loop
  std::size_t outbox_bytes_ = 0;
  std::uint64_t next_out_ = 1;
  std::size_t unsent_bytes_ = 0;

  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  bool announces_ = false;
  std::map<std::uint64_t, RegionTable::Access>
      leaves_;                                    // announced regions, until the server lets go
  std::unique_ptr<UcxMessageBulk> message_bulk_;  // always there: the peer may ask by message
  std::unique_ptr<BulkMeans> means_;              // null: message_bulk_
  std::unique_ptr<BulkQueue> queue_;

  bool closing_ = false;
  std::unique_ptr<EventLoop::Timer> closing_timer_;
  Status ended_;  // why the link is over; OK while it is not
};

}  // namespace precis
