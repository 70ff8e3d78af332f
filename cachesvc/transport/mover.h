// The seam of bulk transfers: a mover brings bytes from a client's memory to the server's and back
// by one means. A connection has the movers that both sides can use, the fastest first, and gives
// each transfer to the first that supports it; nothing else asks which one that is.
//
// Used on the control loop's thread; completions run there, on a later turn.
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

  virtual const char* name() const = 0;  // for people: "stream"; may be empty
  // Whether it can move bytes between memory of the server's in `local` and this region, as far as
  // it can tell; post() may still refuse.
  virtual bool supports(MemorySpace local, const RemoteRegion& remote) const = 0;
  virtual BulkLimits limits() const = 0;
  // Moves the chunk, which BulkTransfer has checked against the region's own bounds; `ended` is
  // called once. kNotFound where the client has taken the region back.
  virtual void post(BulkChunk chunk, Ended ended) = 0;
  // The region where it lies, if this mover maps it; null else.
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }
  // What was posted ends with `why` as soon as no memory is touched for it any more, and so does
  // what is posted from now on.
  virtual void cancel(const Status& why) = 0;
};

}  // namespace precis
