// The parts of a service that a put needs, writers in the same process, and the result of a put
// that has the service to itself.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/thread_executor.h"
#include "cachesvc/pipeline/open_put.h"
#include "cachesvc/pipeline/put_path.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/pipeline/near_peer.h"
#include "tests/unit/store/forwarding_store.h"

namespace precis::testing {

// Dimensions of the puts.
inline constexpr std::uint32_t kLayers = 4, kHeads = 2, kTokens = 48, kQueries = 8;
// Layers take seats in turn: the records of each layer are final once they are encoded.
inline constexpr char kUniform[] = "keydiff";
// Layers take seats from earlier layers, whose records shrink.
inline constexpr char kCompeting[] = "external(heads=flat, layers=global_flat)";
inline constexpr char kObserving[] = "snapkv(window=8)";

using PutPtr = std::shared_ptr<OpenPut>;
using Outcome = Result<msg::SegmentInfo>;
using Pieces = Result<PayloadMemory::Pieces>;

// Holds staged values, as a disk does that writes slowly.
class SlowStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::shared_ptr<StagedValue> stage(SharedBytes value) override;
  Status write(const StoreBatch& batch, Durability durability) override;
  void hold();
  void write_out();
  // The number of staged values whose bytes are unchanged.
  std::size_t unchanged() const;
  // Called before each write, on its thread.
  std::function<void(const StoreBatch&)> on_write;

 private:
  struct Staged {
    SharedBytes value;
    std::vector<std::byte> was;
  };
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool holds_ = false;
  std::vector<Staged> staged_;
};

// A writer with its memory in this process: a pull copies at once and completes later, or once
// let() allows it.
class NearWriter final : public NearPeer {
 public:
  explicit NearWriter(EventLoop& loop) : loop_(loop) {}
  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into, const Registration&,
            Completion done) override;
  // If `near`, the server reads the writer's memory in place.
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override;
  bool near = false;
  // The number of regions that are being read in place.
  int read_now() const { return *reading_; }
  int pulls() const { return pulls_; }
  void hold() { lets_ = 0; }
  void let(int pulls);

 private:
  class PayloadMemory;
  EventLoop& loop_;
  int pulls_ = 0;
  std::shared_ptr<int> reading_ = std::make_shared<int>(0);
  int lets_ = 1 << 20;
  std::deque<Completion> pulled_;
};

// A layer with the same content for the writers of every fixture.
struct PushedLayer : NearLayer {
  PushedLayer(const ModelSpec& of, std::uint32_t index);
  // All tokens of `count` heads from `begin` on, with the scores or queries that the recipe needs.
  msg::PushLayer heads(const std::string& recipe, std::uint32_t begin, std::uint32_t count) const;
  void observe(msg::PushLayer& push) const;  // adds the queries of all heads
  std::vector<float> scores, queries;
};

class PutFixture {
 public:
  // Requests for memory time out after `wait`. There are as many compute threads as the backend has
  // compressors.
  explicit PutFixture(std::chrono::milliseconds wait = std::chrono::hours(1),
                      std::unique_ptr<kernels::Backend> with = kernels::make_cpu_backend(1));
  ~PutFixture();

  // Runs until every remaining operation waits for an event from outside.
  void settle();
  // Must not be called on the loop's thread. Returns once no work that needs only the loop and the
  // compute thread is left.
  void wait_for_compute();
  // Runs the functions posted so far to the loop and the threads, then the functions that those
  // posted to the loop.
  void turn();
  // Runs the loop for some turns without waiting for the threads.
  void turn_loop();
  // Runs until the answer has arrived.
  template <typename T>
  T& answered(std::optional<T>& answer) {
    while (!answer) turn();
    return *answer;
  }

  msg::BeginPut request(const std::string& recipe, Budget budget, TokenId first = 100) const;
  PutPtr begin(const msg::BeginPut& request, NearWriter& from);
  // The answers of the functions below arrive while the loop runs.
  std::optional<Status>& push(const PutPtr& put, const msg::PushLayer& piece, NearWriter& from);
  std::optional<Outcome>& commit(const PutPtr& put, const NearWriter& from);
  // Asks for the commit as soon as the push is answered.
  std::optional<Outcome>& push_and_commit(const PutPtr& put, const msg::PushLayer& piece,
                                          NearWriter& from);
  // Requests memory for another connection.
  std::optional<Pieces>& want(std::size_t size_bytes);
  // Checks that there were `count` pushes and that all of them succeeded.
  void check_taken_in(std::size_t count);

  // Leaves only `size_bytes` of the arena free, in one piece.
  void leave(std::size_t size_bytes);
  void leave_nothing();
  void check_nothing_held(const SegmentId& stored);
  std::vector<std::vector<std::byte>> records(const SegmentId& stored);  // [layers]

  CatalogFixture f;
  SlowStore store{f.store};
  std::unique_ptr<Catalog> catalog;
  AsioLoop loop;
  std::unique_ptr<Arena> arena;
  HotTier hot_tier;
  PayloadMemory memory;
  PutRoom room;
  DiskQuota disk_quota;
  PrefillRate prefill;
  ThreadExecutor compute;
  FairExecutor storage{std::make_unique<ThreadExecutor>("storage", 1)},
      reads{std::make_unique<ThreadExecutor>("reads", 1)};
  NoRegistration registration;
  PathHasher paths{loop, std::make_unique<ThreadExecutor>("paths", 1), 1};
  Metrics metrics;
  Log log{Log::Level::kOff};
  const std::unique_ptr<kernels::Backend> backend;
  Projections projections;
  RestoreRate rate{f.clock};
  ColdReads cold{{loop, reads, storage, memory, *catalog, hot_tier, rate, metrics, log, f.clock}};
  PutPath path;
  const Tenant tenant{f.tenant, ""};
  NearWriter one{loop}, other{loop};
  std::vector<PushedLayer> layers;
  std::vector<PutPtr> puts;
  std::vector<std::unique_ptr<Arena::Buffer>> others_have;  // memory taken from the arena
  std::deque<std::optional<Result<PutPtr>>> begins;
  std::deque<std::optional<Status>> pushes;
  std::deque<std::optional<Outcome>> commits;
  std::deque<std::optional<Pieces>> wants;

 private:
  std::unique_ptr<Catalog> open();
  Task<void> began(msg::BeginPut request, NearWriter& from, std::optional<Result<PutPtr>>& answer);
  Task<void> pushed(PutPtr put, msg::PushLayer piece, NearWriter& from,
                    std::optional<Status>& answer);
  Task<void> committed(PutPtr put, JointPut::Writer writer, std::optional<Outcome>& answer);
  Task<void> pushed_and_committed(PutPtr put, msg::PushLayer piece, NearWriter& from,
                                  std::optional<Status>& answer, std::optional<Outcome>& done);
  Task<void> had(std::size_t size_bytes, std::optional<Pieces>& answer);
};

// A put of whole layers, one after another, with all of the memory for itself.
struct PutAlone {
  using Order = std::vector<std::uint32_t>;
  explicit PutAlone(const msg::BeginPut& request, const Order& order = {0, 1, 2, 3});
  // Checks that a put of the same content stored the same segment and released all of its memory.
  void check_is(PutFixture& fixture, const std::optional<Outcome>& done) const;

  msg::SegmentInfo stored;
  std::vector<std::vector<std::byte>> records;  // [layers]
  std::vector<std::size_t> held;                // [layers], bytes after each layer's compression
  std::size_t staged_bytes_max = 0;             // of the put
  std::size_t layer_bytes_max = 0;              // of a layer's K and V as pushed, and its records
};

}  // namespace precis::testing
