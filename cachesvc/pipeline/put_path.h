// put: ingest -> check -> score -> select -> allocate -> join -> encode -> store -> commit
// (ARCHITECTURE.md, Put; selected rows are compacted as they are encoded).
//
// A put lives from begin() to commit() or abort(); dropped in between (its client left), it leaves
// no trace. Nothing is visible before commit. All methods run on the event loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/compressor_pool.h"
#include "cachesvc/pipeline/gate.h"
#include "cachesvc/pipeline/joint_put.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/projections.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/pipeline/staged_layer.h"
#include "cachesvc/pipeline/tenant.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/transport/transport.h"
#include "precis/joiner.h"
#include "precis/stages.h"

namespace precis {

class PutPath {
 public:
  // What the path stands on; all outlive it.
  struct Parts {
    EventLoop& loop;
    Executor& compute;
    FairExecutor& storage;
    PayloadMemory& memory;
    const Registration& registration;  // of the arena
    std::size_t arena_bytes;
    kernels::Backend& backend;
    Catalog& catalog;
    PathHasher& paths;
    HotTier& hot_tier;
    Projections& projections;
    PutRoom& room;
    Metrics& metrics;
    const Clock& clock;
    BudgetDefaults configured;  // the process's default recipe and keep
  };
  explicit PutPath(Parts parts);
  ~PutPath();
  PutPath(const PutPath&) = delete;
  PutPath& operator=(const PutPath&) = delete;

  class Put;  // one put under way

  // Finds the parent, settles recipe and budget, and waits until there is room for all that the put
  // stages; or joins the put that another of its writers has begun. Shared with the put's requests
  // under way, and by all who write it.
  Task<Result<std::shared_ptr<Put>>> begin(const Tenant& tenant, msg::BeginPut request,
                                           const Connection& from);
  // Which tokens are to be pushed, and the rest that its client is told.
  static msg::PutBegun describe(const Put& put);

  // Gives a put up, for all who write it: what is under way for it ends at its next stage, then its
  // memory goes.
  Status abort(Put& put);
  // Nothing is under way for it, and nothing was heard of it since.
  static bool is_silent(const Put& put, std::chrono::steady_clock::time_point since);
  // Nothing is being compressed or moved.
  bool idle() const { return compressing_ == 0; }

  // Takes one piece in; done once its bytes are here. A complete layer is compressed behind, or
  // before that where its rows are read in place.
  // kRejected: there is no memory for it now; the same piece may be pushed again.
  Task<Status> push(std::shared_ptr<Put> put, msg::PushLayer piece, Connection& from);

  // Waits for compression, and for all who write it to ask for this, then stores. Who asks again
  // waits for the same, or is told what came of it.
  Task<Result<msg::SegmentInfo>> commit(std::shared_ptr<Put> put, JointPut::Writer writer,
                                        Durability durability);

 private:
  static Digest joint_name(const msg::BeginPut& without_tokens, const Digest& tip, std::size_t end);
  std::shared_ptr<Put> find_joint(const Digest& name) const;
  // put_plan.cc: what the put is of.
  struct Planned {
    std::shared_ptr<Put> put;
    Digest joint_name;  // of one that several write
    Status status;      // why the put can't be as it is asked for
  };
  Task<Result<Planned>> plan(const Tenant& tenant, msg::BeginPut request, const Connection& from);
  Status settle(const Tenant& tenant, const msg::BeginPut& request, Put& put);
  Status equip(const Tenant& tenant, const Digest& model, Put& put);
  // Any thread, of a put that nobody else knows yet.
  Status place(const Tenant& tenant, const msg::BeginPut& request, const TokenPath& path, Put& put);
  Status no_room(const Put& put, const std::string& bytes) const;
  Task<Status> deal(Put& put);
  Task<Result<std::unique_ptr<PutRoom::Place>>> find_room(Put& put, const Tenant& tenant,
                                                          const Connection& from);
  // Compresses a whole layer from where it is; false where that can't be.
  Task<bool> compress_in_place(std::shared_ptr<Put> put, const msg::PushLayer& piece,
                               Connection& from);
  bool read_in_place(Put& put, const msg::PushLayer& piece, Connection& from);
  Task<Status> take_in(std::shared_ptr<Put> put, msg::PushLayer piece, Connection& from);
  // put_memory.cc: what the layer is staged in, its records' room and the projection that it is
  // weighed with.
  Task<Status> take_memory(std::shared_ptr<Put> put, std::uint32_t layer, const Connection& from);
  Task<void> make_way_for_waiter();
  Task<void> make_way(std::shared_ptr<Put> put);
  void may_move(const std::weak_ptr<Put>& put);
  void let_go(Put& put);
  Task<void> compress_staged(std::shared_ptr<Put> put, std::uint32_t layer);
  Task<void> compress(std::shared_ptr<Put> put, std::uint32_t layer);
  void end_behind(Put& put);
  Task<Status> compress_layer(Put& put, std::uint32_t layer);
  // These on compute threads, of which a put's share what they join under its lock.
  Status stages(Put& put, std::uint32_t layer);
  Status join(Put& put, std::uint32_t layer, kernels::OrderedLayer ordered);
  void write_ahead(Put& put, std::uint32_t layer);
  Task<Result<msg::SegmentInfo>> carry_out(std::shared_ptr<Put> put, Durability durability);
  Task<Status> harden(const Put& put, Durability durability);
  Task<Status> store(Put& put, Durability durability);

  Parts parts_;
  CompressorPool compressors_;
  std::vector<std::weak_ptr<Put>> open_;  // and some that were
  Gate in_place_;
  std::size_t compressing_ = 0;         // layers, of all puts, and moves of records
  std::size_t compressing_staged_ = 0;  // of the layers those that are not read in place
  std::size_t way_wanted_ = 0;          // how often, since puts began to make way
};

}  // namespace precis
