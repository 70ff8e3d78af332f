// Puts: begin -> push (claim, stage, compress) -> commit (place seats, write, store). A put lives
// from begin() to commit() or abort(); if its client leaves before, no trace of it stays. Nothing
// is visible before the commit. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "cachesvc/pipeline/put_compression.h"
#include "cachesvc/pipeline/put_memory.h"
#include "cachesvc/pipeline/put_planner.h"

namespace precis {

class PutPath {
 public:
  explicit PutPath(PutParts parts);
  PutPath(const PutPath&) = delete;
  PutPath& operator=(const PutPath&) = delete;

  // Finds the parent, settles recipe and budget, and waits until there is room for all that the put
  // stages; or joins the put that another of its writers has begun. The put is shared by its
  // requests under way and by all its writers.
  Task<Result<std::shared_ptr<OpenPut>>> begin(const Tenant& tenant, msg::BeginPut request,
                                               const Connection& from);
  // The answer to the put's client: among others, the range of tokens to push.
  static msg::PutBegun describe(const OpenPut& put);

  // Gives a put up for all its writers. Work under way ends at its next stage, then the put's
  // memory is freed.
  Status abort(OpenPut& put);
  // Whether no request of the put is under way and none was accepted after `since`.
  static bool is_silent(const OpenPut& put, std::chrono::steady_clock::time_point since);
  // Whether no layer is being compressed or moved.
  bool idle() const { return memory_.idle(); }

  // Takes one piece of a layer; returns once its bytes are here. A complete layer is compressed
  // after that, or before it if its rows are read in place.
  // kRejected: there is no memory for the piece now; it may be pushed again.
  Task<Status> push(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from);

  // Waits for compression, and until all writers ask for the commit, then stores the segment. A
  // writer that asks again waits for the same commit, or gets its outcome.
  Task<Result<msg::SegmentInfo>> commit(std::shared_ptr<OpenPut> put, JointPut::Writer writer,
                                        Durability durability);

 private:
  Task<Status> take(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from);
  Task<Status> take_memory(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                           const Connection& from);
  Task<Result<msg::SegmentInfo>> carry_out(std::shared_ptr<OpenPut> put, Durability durability);
  Task<Status> harden(const OpenPut& put, Durability durability);
  Task<Status> store(OpenPut& put, Durability durability);

  const PutParts parts_;
  OpenPuts puts_;
  PutPlanner planner_;
  PutMemory memory_;
  PutCompression compression_;
};

}  // namespace precis
