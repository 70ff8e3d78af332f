// The interface for bulk transfers. A mover moves bytes between a client's memory and the server's
// by one method. A connection has the movers that both sides support, fastest first, and gives each
// transfer to the first one that supports it. No other code knows which mover that is.
//
// Used on the control loop's thread. Completions run there, in a later turn.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/transport/bulk_transfer.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Mover {
 public:
  using Ended = BulkQueue::Ended;
  virtual ~Mover() = default;

  virtual const char* name() const = 0;  // for users: "stream"; may be empty
  // Returns whether this mover can move bytes between this server memory and this region, as far as
  // it knows; post() may still refuse.
  virtual bool supports(const Registration& local, const RemoteRegion& remote) const = 0;
  virtual BulkLimits limits() const = 0;
  // Moves the chunk, which BulkTransfer has checked against the region's bounds. Calls `ended`
  // once. kNotFound if the client has withdrawn the region.
  virtual void post(BulkChunk chunk, Ended ended) = 0;
  // Returns the region's memory if this mover maps it, else null.
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }
  // Posted chunks end with `why` as soon as nothing accesses their memory any more. Chunks posted
  // later end with `why` too.
  virtual void cancel(const Status& why) = 0;
};

}  // namespace precis
