// The server's end of one admitted client: its control stream, the bulk socket that the client has
// bound to it, and the movers that both allow. Used on the control loop's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/executor.h"
#include "cachesvc/net/control_stream.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/transport/mover.h"

namespace precis {

class SharedBuffers;

class SocketLink : public std::enable_shared_from_this<SocketLink> {
 public:
  struct Identity {
    std::uint64_t number;  // named in Bind
    Proof bind_key;
    std::string peer;
    // The name of the socket it is known by: "tcp", "tls" or "unix".
    std::string socket_kind;
  };
  SocketLink(EventLoop& loop, std::shared_ptr<ControlStream> control, Identity identity,
             Executor& copiers, std::shared_ptr<RdmaDevice> rdma = nullptr);
  ~SocketLink();

  const Identity& identity() const { return identity_; }
  bool is_bound() const { return data_ != nullptr; }
  // Takes the bulk socket, whose frames are read on `bulk_loop` from now on.
  void bind(EventLoop& bulk_loop, std::unique_ptr<Socket> socket);

  void start(Connection::Handlers handlers);
  void send(std::vector<std::byte> message);
  // This side's own end: no handler is called any more.
  void close();
  void take_turns(Connection::Turns turns) { control_->take_turns(std::move(turns)); }
  // The link broke, or its transport goes: the handlers hear why.
  void end(const Status& why);

  void transfer(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
                std::vector<MutableBytes> local, const Registration& registration, Completion done);
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& remote);
  std::size_t unsent_bytes() const { return control_ ? control_->unsent_bytes() : 0; }
  std::optional<std::chrono::steady_clock::time_point> stalled_since() const;
  std::string description() const;

 private:
  struct Means {
    std::shared_ptr<Mover> mover;  // shared with the bulk loop's handlers
    std::unique_ptr<BulkQueue> queue;
  };
  void add(std::shared_ptr<Mover> mover, bool fastest = false);
  void on_bulk_end(const Status& why);
  Status on_rdma_turn(Bytes body);
  void shut(const Status& why);

  EventLoop& loop_;
  std::shared_ptr<ControlStream> control_;
  const Identity identity_;
  Executor& copiers_;
  const std::shared_ptr<RdmaDevice> rdma_;  // null: none was offered
  std::unique_ptr<RdmaPeer> rdma_peer_;     // between the client's turns
  unsigned rdma_turns_ = 0;
  std::shared_ptr<DataStream> data_;
  std::shared_ptr<SharedBuffers> buffers_;  // shared with the bulk loop, which fills it
  std::vector<Means> means_;                // the fastest first
  Connection::Handlers handlers_;
  std::unique_ptr<EventLoop::Timer> bulk_ended_;  // until the control socket ends as well
  bool over_ = false;
  std::string kind_;  // of the bulk socket
};

// The seam's object: closes the link with itself.
std::unique_ptr<Connection> make_connection(std::shared_ptr<SocketLink> link);

}  // namespace precis
