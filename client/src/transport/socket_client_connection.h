// The client's end of an admitted connection. Used on the loop's thread, except expose().
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/net/connection_end.h"
#include "client/src/transport/client_regions.h"
#include "client/src/transport/client_transport.h"

namespace precis {

class SocketClientConnection final : public ClientConnection, public ConnectionEnd {
 public:
  // `kind`: the kind of its sockets, for example "unix".
  SocketClientConnection(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
                         std::shared_ptr<ClientRegions> regions, std::string kind);
  ~SocketClientConnection() override;

  // Serves the bulk socket. `rdma` is offered if both sides have it and are on different hosts; it
  // may be null.
  void open(std::shared_ptr<RdmaDevice> rdma);
  Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                           MutableBytes memory) override;
  std::string description() const override { return kind_; }

 private:
  Status on_rdma_turn(Bytes body) override;
  void on_message(std::uint64_t after_bulk, std::vector<std::byte> body) override;
  void on_bulk_received();
  void stop_bulk(const Status&) override { regions_->close(); }

  const std::shared_ptr<ClientRegions> regions_;  // shared with the exposures
  const std::string kind_;
  struct Held {
    std::uint64_t after_bulk;
    std::vector<std::byte> body;
  };
  std::deque<Held> held_;  // messages whose bulk bytes have not arrived yet
  std::size_t held_bytes_ = 0;
  std::uint64_t bulk_frames_received_ = 0;
};

}  // namespace precis
