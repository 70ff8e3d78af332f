// Random changes, moves, crashes and failures of the shared storage, while other threads evict,
// read and sweep: every segment that is stored reads back exactly, no other one is found, and in
// the end the shared storage has no object that no row names.
#include <atomic>
#include <map>
#include <random>
#include <shared_mutex>
#include <thread>

#include "cachesvc/server/eviction.h"
#include "cachesvc/server/orphans.h"
#include "tests/unit/shared/shared_node.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kFirstShard = 70, kShardCount = 3;
constexpr std::size_t kSegments = 18;
constexpr std::uint64_t kOrphansMs = 1'000'000;  // no put has such times

class World {
 public:
  explicit World(unsigned seed) : random_(seed) {
    for (std::size_t n = 0; n < kSegments; ++n) {
      const auto shard = static_cast<std::uint32_t>(kFirstShard + n % kShardCount);
      whole_.push_back(in_shard(tokens(8, static_cast<TokenId>(n * 1000)), 1, shard));
      less_.push_back(trimmed(whole_.back()));
    }
    local_max_ = kSegments * whole_[0].row.stored_bytes / 5;
    for (Node* const node : {&a_, &b_}) node->catalog->limit_kept(local_max_);
    for (std::uint32_t s = 0; s < kShardCount; ++s) {
      holder_[s] = &a_;
      a_.take(kFirstShard + s);
    }
    threads_.emplace_back([this] { evict(a_); });
    threads_.emplace_back([this] { evict(b_); });
    threads_.emplace_back([this] { read(); });
    threads_.emplace_back([this] {
      for (bool of_a = true; !stop_; of_a = !of_a) sweep(of_a ? a_ : b_);
    });
  }
  ~World() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void act() {
    const std::size_t n = pick(kSegments);
    switch (pick(13)) {
      case 12: return leave_orphan(n);
      case 0: return move(n % kShardCount);
      case 1: return restart();
      case 2: tier_.fill(pick(2) == 0); break;
      case 3:
      case 4: remove(n); break;
      case 5:
      case 6: cut(n); break;
      default: put(n);
    }
  }
  // Checks all stored segments, before and after the waiting changes are copied.
  void check() {
    check_all();
    copy_all();
    check_all();
    const std::lock_guard lock(mutex_);
    CHECK(failed_ == "");
  }
  // Checks the objects after a change of each shard, while the other threads are paused.
  void check_objects() {
    const Pause pause(*this);
    for (std::size_t s = 0; s < kShardCount; ++s) put(s);
    copy_all();
    while (sweep_now(a_) + sweep_now(b_) > 0) continue;
    REQUIRE(tier_
                .list_objects([&](const std::string& name, std::uint64_t) {
                  INFO(name);
                  CHECK(may_be_named(object_in(name).value()));
                  return Status();
                })
                .ok());
  }
  std::uint64_t evicted() const { return evicted_; }
  std::uint64_t swept() const { return swept_; }

 private:
  // The other threads are paused while this object lives. Without `pausing_`, they could keep the
  // lock shared for long.
  struct Pause {
    explicit Pause(World& world) : world_(world) {
      world_.pausing_ = true;
      world_.running_.lock();
    }
    ~Pause() {
      world_.running_.unlock();
      world_.pausing_ = false;
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    World& world_;
  };
  std::shared_lock<std::shared_mutex> run() {
    while (pausing_) std::this_thread::yield();
    return std::shared_lock(running_);
  }

  std::size_t pick(std::size_t below) { return random_() % below; }
  Node& holder_of(std::size_t n) { return *holder_[n % kShardCount]; }
  Catalog& catalog_of(std::size_t n) { return *holder_of(n).catalog; }
  const SegmentId& id(std::size_t n) const { return whole_[n].row.id; }

  void put(std::size_t n) {
    NewSegment segment = whole_[n];
    segment.row.created_unix_ms = ++now_ms_;  // as the service does
    REQUIRE(holder_of(n).put(segment).ok());
    stored_[n] = &whole_[n];
  }
  void remove(std::size_t n) {
    if (!stored_.erase(n)) return;
    REQUIRE(catalog_of(n).remove(made().tenant, id(n), false, nullptr).ok());
    copy(n % kShardCount);  // a removal is acknowledged then
  }
  void cut(std::size_t n) {
    if (!stored_.contains(n) || stored_[n] != &whole_[n]) return;
    const auto row = catalog_of(n).segment(made().tenant, id(n));
    REQUIRE(row.ok());
    SegmentRow to = less_[n].row;
    to.created_unix_ms = (*row)->created_unix_ms;
    REQUIRE(*catalog_of(n).trim(**row, to, less_[n].payload(), Durability::kWal));
    stored_[n] = &less_[n];
  }

  // Whether a row names the object, or a later version of that row may name it.
  bool may_be_named(const ObjectName& object) {
    for (const auto& [n, segment] : stored_) {
      if (id(n) != object.segment) continue;
      return (*catalog_of(n).segment(made().tenant, id(n)))->created_unix_ms <=
             object.created_unix_ms;
    }
    return false;
  }

  // Writes an object as a node does that dies before it writes the row.
  void leave_orphan(std::size_t n) {
    const SegmentRow row =
        in_shard(tokens(8, 50'000 + n), kOrphansMs + ++now_ms_, *whole_[n].row.shard).row;
    REQUIRE(tier_.write_object(object_name(row, 0), bytes_of("orphan")).code() !=
            StatusCode::kUnavailable);
  }

  // The shard gets another holder. The former one removes its copies, or keeps them.
  void move(std::size_t s) {
    copy_all();
    const auto shard = static_cast<std::uint32_t>(kFirstShard + s);
    {
      const Pause pause(*this);
      Node& from = *holder_[s];
      from.drop(shard);
      std::vector<bool> bits(kShards);
      bits[shard] = true;
      if (pick(2) == 0) from.catalog->remove_here(bits);
      holder_[s] = &from == &a_ ? &b_ : &a_;
      holder_[s]->take(shard);
    }
    // The new holder could lose earlier changes in a crash, until a change of its own is copied.
    remove(s);
    put(s);
    copy(s);
  }
  // One node crashes, with or without changes that are not copied.
  void restart() {
    if (pick(2) == 0) copy_all();
    const Pause pause(*this);
    Node& node = pick(2) == 0 ? a_ : b_;
    node.crash();
    node.open();
    node.catalog->limit_kept(local_max_);
    for (std::uint32_t s = 0; s < kShardCount; ++s) {
      if (holder_[s] == &node) node.take(kFirstShard + s);
    }
  }
  void copy(std::size_t s) {
    tier_.fill(false);
    REQUIRE(holder_[s]->copied(static_cast<std::uint32_t>(kFirstShard + s)).ok());
  }
  void copy_all() {
    for (std::size_t s = 0; s < kShardCount; ++s) copy(s);
  }
  void check_all() {
    for (std::size_t n = 0; n < kSegments; ++n) {
      CAPTURE(n);
      if (stored_.contains(n)) {
        CHECK(holder_of(n).has(*stored_[n]));
      } else {
        CHECK(catalog_of(n).segment(made().tenant, id(n)).status().code() == StatusCode::kNotFound);
      }
    }
  }

  // ---- the other threads

  void evict(Node& node) {
    MachineRuntime runtime;
    while (!stop_) {
      const auto lock = run();
      std::vector<bool> own(kShards);
      for (std::uint32_t s = 0; s < kShardCount; ++s) own[kFirstShard + s] = holder_[s] == &node;
      Eviction eviction({tier_, *node.catalog, runtime, node.name()});
      evicted_ += eviction.run(local_max_ / 3, own, [] {}).bytes;
    }
  }
  void sweep(Node& node) {
    const auto lock = run();
    swept_ += sweep_now(node);
  }
  std::uint64_t sweep_now(Node& node) {
    const SystemClock clock;
    Orphans orphans({tier_, *node.uploads, *node.catalog, clock, std::chrono::nanoseconds(0)});
    const std::uint64_t removed = orphans.sweep().removed;
    return removed + orphans.sweep().removed;
  }
  // Reads as ColdReads does: a reader of the stored row gets the bytes of that row, or the row has
  // changed.
  void read() {
    for (std::size_t turn = 0; !stop_; ++turn) {
      const auto lock = run();
      const std::size_t n = turn % kSegments;
      const auto row = catalog_of(n).segment(made().tenant, id(n));
      if (!row.ok()) continue;
      for (std::uint32_t layer = 0; layer < (*row)->layer_bytes.size(); ++layer) {
        read_layer(n, *row, layer);
      }
    }
  }
  void read_layer(std::size_t n, const Catalog::Row& row, std::uint32_t layer) {
    std::vector<std::byte> bytes(row->layer_bytes[layer]);
    bool was_here = true;
    Status status = catalog_of(n).peek_layer(*row, layer, bytes, &was_here);
    const auto& all = whole_[n].layers[layer];
    const bool is_right = std::equal(bytes.begin(), bytes.end(), all.begin());
    if (status.ok() && is_right && !was_here) catalog_of(n).keep_layer(*row, layer, bytes);
    if (status.code() == StatusCode::kNotFound) {
      status = catalog_of(n).read_layer(*row, layer, bytes);
    }
    const auto now = catalog_of(n).segment(made().tenant, id(n));
    if (!now.ok() || *now != row || (status.ok() && is_right)) return;
    // A change may have reached the store but not yet memory.
    if (!catalog_of(n).quarantine(*row)) return;
    const std::lock_guard lock(mutex_);
    failed_ += "segment " + std::to_string(n) + ": " + status.to_string() + "\n";
  }

  MemoryTier tier_;
  Node a_{tier_, "a"}, b_{tier_, "b"};
  std::mt19937 random_;
  std::vector<NewSegment> whole_, less_;
  std::map<std::size_t, const NewSegment*> stored_;  // what a reader must find
  std::uint64_t now_ms_ = 1;
  std::shared_mutex running_;  // held exclusively while nodes move or restart
  std::atomic<bool> pausing_ = false;
  std::uint64_t local_max_ = 0;
  std::array<Node*, kShardCount> holder_{};
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> evicted_ = 0, swept_ = 0;
  std::mutex mutex_;
  std::string failed_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("whatever is evicted when, every stored segment reads back exactly", "[unit][shared]") {
  std::uint64_t evicted = 0, swept = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    World world(seed);
    for (int step = 0; step < 150; ++step) {
      world.act();
      if (step % 10 == 9) world.check();
    }
    world.check();
    world.check_objects();
    evicted += world.evicted();
    swept += world.swept();
  }
  CHECK(evicted > 0);
  CHECK(swept > 0);
}
