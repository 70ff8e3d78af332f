// The server's end of one admitted client: the bulk socket that the client has bound to it, and the
// movers that both sides allow. Used on the control loop's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/executor.h"
#include "cachesvc/net/connection_end.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/transport/mover.h"

namespace precis {

class ServerConnection final : public Connection, public ConnectionEnd {
 public:
  struct Identity {
    std::string peer;
    std::string kind;  // for description(): the socket's kind, as "tcp"
    Proof bind_key{};
  };
  // A null `rdma` means that RDMA was not offered.
  ServerConnection(EventLoop& loop, std::shared_ptr<FrameChannel> channel, Identity identity,
                   std::shared_ptr<RdmaDevice> rdma = nullptr);
  ~ServerConnection() override;

  const Proof& bind_key() const { return identity_.bind_key; }
  bool is_bound() const { return data_ != nullptr; }
  // Takes the bulk socket. `bulk_loop` reads its frames from now on.
  void bind(EventLoop& bulk_loop, std::unique_ptr<Socket> socket, Executor& copiers);
  void add(std::shared_ptr<Mover> mover, bool is_fastest = false);

  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
            const Registration& local, Completion done) override;
  void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
            std::uint64_t offset, Completion done) override;
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& remote) override;
  void take_turns(Turns turns) override { channel().take_turns(std::move(turns)); }
  std::size_t unsent_bytes() const override { return channel().unsent_bytes(); }
  std::optional<std::chrono::steady_clock::time_point> stalled_since() const override;
  std::string description() const override;
  std::string transport() const override;
  std::string peer() const override { return identity_.peer; }

 private:
  struct Means {
    std::shared_ptr<Mover> mover;  // shared with the bulk loop's handlers
    std::unique_ptr<BulkQueue> queue;
  };
  Status on_rdma_turn(Bytes body) override;
  void on_message(std::uint64_t after_bulk, std::vector<std::byte> body) override;
  void stop_bulk(const Status& why) override;
  std::uint64_t bulk_frames_sent() const override { return data_ ? data_->data_frames_sent() : 0; }
  void transfer(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
                std::vector<MutableBytes> local, const Registration& registration, Completion done);

  Identity identity_;  // `kind` is the bulk socket's once it is bound
  const std::shared_ptr<RdmaDevice> rdma_;
  std::shared_ptr<RdmaPeer> rdma_peer_;  // between the client's two RDMA frames
  unsigned rdma_turns_ = 0;
  std::shared_ptr<DataStream> data_;
  std::vector<Means> means_;  // fastest first
};

}  // namespace precis
