// The client's end of an admitted connection. Used on the loop's thread, except expose().
#pragma once

#include <memory>
#include <string>

#include "cachesvc/net/link_end.h"
#include "client/src/transport/client_regions.h"
#include "client/src/transport/client_transport.h"
#include "precis/limits.h"

namespace precis {

class ClientLink final : public ClientConnection, public LinkEnd {
 public:
  // `kind`: of its sockets, "unix".
  ClientLink(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
             std::shared_ptr<ClientRegions> regions, std::string kind);
  ~ClientLink() override;

  // Serves the bulk socket. `rdma`, where both sides have it and are apart, is offered; it may be
  // null.
  void open(std::shared_ptr<RdmaDevice> rdma);
  Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                           MutableBytes memory) override;
  std::string description() const override { return kind_; }

 private:
  Status on_rdma_turn(Bytes body) override;
  std::size_t held_bytes_max() const override { return limits::kSendQueueBytesMax; }
  void stop_bulk(const Status&) override { regions_->close(); }

  const std::shared_ptr<ClientRegions> regions_;  // shared with what is exposed
  const std::string kind_;
};

}  // namespace precis
