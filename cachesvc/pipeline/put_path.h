// Puts: begin -> push (claim, stage, compress) -> commit (place seats, write, store). A put lives
// from begin() to commit() or abort(). If its client leaves before, the put leaves no trace.
// Nothing is visible before the commit. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "cachesvc/pipeline/open_puts.h"
#include "cachesvc/pipeline/put_compression.h"
#include "cachesvc/pipeline/put_memory.h"
#include "cachesvc/pipeline/put_planner.h"
#include "cachesvc/pipeline/put_storage.h"

namespace precis {

class PutPath {
 public:
  explicit PutPath(PutParts parts);
  PutPath(const PutPath&) = delete;
  PutPath& operator=(const PutPath&) = delete;

  // Call it before the first put.
  void catch_up_by(PutPlanner::CatchUp catch_up) { planner_.catch_up_by(std::move(catch_up)); }

  // Finds the parent, sets recipe and budget, and waits until there is room for all that the put
  // stages. If another writer has begun the same put, joins that put instead. All writers of a put
  // and its requests in progress share it. A put that is begun `traced` has OpenPut::times.
  // `shard`: of the put, in a cluster.
  Task<Result<std::shared_ptr<OpenPut>>> begin(const Tenant& tenant, msg::BeginPut request,
                                               const Connection& from, bool traced = false,
                                               std::optional<std::uint32_t> shard = {});
  // Returns the reply to the client, which has the range of tokens to push.
  static msg::PutBegun describe(const OpenPut& put);

  // Gives a put up, for all of its writers. Its work in progress ends at the next stage, then its
  // memory is freed. kInvalidArgument while the put is being committed.
  Status abort(OpenPut& put);
  // Returns whether no request of the put is in progress, and OpenPut::last_activity is before
  // `since`.
  static bool is_silent(const OpenPut& put, Clock::Time since);
  bool builds_on(const SegmentId& parent) const { return puts_.builds_on(parent); }
  // Returns whether no layer is being compressed.
  bool idle() const { return memory_.idle(); }

  // Takes one piece of a layer; completes when the piece's bytes have arrived. A complete layer is
  // compressed in the background, except that a layer whose rows are read in place is compressed
  // before its push completes. kRejected if there is no memory for the piece now; the client may
  // push it again.
  Task<Status> push(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from);

  // Waits for compression and until all writers have asked for the commit, then stores the segment.
  // A repeated request waits for the same commit, or gets its outcome. `prefill_seconds`: as the
  // client says it; 0: unknown.
  Task<Result<msg::SegmentInfo>> commit(std::shared_ptr<OpenPut> put, JointPut::Writer writer,
                                        Durability durability, double prefill_seconds = 0);

 private:
  Task<Status> take(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from);
  Task<Status> take_memory(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                           const Connection& from);
  Task<Result<msg::SegmentInfo>> carry_out(std::shared_ptr<OpenPut> put, Durability durability);

  const PutParts parts_;
  OpenPuts puts_;
  PutPlanner planner_;
  PutMemory memory_;
  PutCompression compression_;
  PutStorage storage_;
};

}  // namespace precis
