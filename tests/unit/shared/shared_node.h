// A node's catalog over a storage that several nodes share, for tests.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/shared/tiered_store.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/shared/memory_tier.h"
#include "tests/unit/store/forwarding_store.h"

namespace precis::testing {

inline constexpr std::uint32_t kShard = 77;
inline constexpr std::chrono::seconds kLong{60};

// Makes the segments of the tests; its own catalog is not used.
inline const CatalogFixture& made() {
  static const CatalogFixture fixture;
  return fixture;
}

inline NewSegment in_shard(const Tokens& path, std::uint64_t created_unix_ms = 1,
                           std::uint32_t shard = kShard) {
  NewSegment segment = made().segment(path);
  segment.row.shard = shard;
  segment.row.created_unix_ms = created_unix_ms;
  return segment;
}

// Calls a function before a value is staged.
class StagingStore final : public ForwardingStore {
 public:
  StagingStore(std::unique_ptr<Store> store, const std::function<void()>& call)
      : ForwardingStore(*store), store_(std::move(store)), call_(call) {}
  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    if (call_) call_();
    return ForwardingStore::stage(std::move(value));
  }

 private:
  const std::unique_ptr<Store> store_;
  const std::function<void()>& call_;
};

class Node {
 public:
  Node(MemoryTier& tier, std::string name) : tier_(tier), name_(std::move(name)) { open(); }
  ~Node() { close(); }

  void open() {
    uploads.emplace(tier_, clock_, std::make_unique<ThreadExecutor>("copies", 2), 1 << 20);
    auto local = std::make_unique<StagingStore>(machine_.open(), on_stage);
    store_ = make_tiered_store(std::move(local), tier_, *uploads);
    catalog = Catalog::open(*store_, clock_, ~0ull, /*in_shards=*/true).value();
    ++starts_;
  }
  void close() {  // and gives up what is not copied
    catalog.reset();
    uploads.reset();
    store_.reset();
  }
  // As close(), and what only memory has is lost. If `hardened`, all earlier writes are first made
  // durable.
  void crash(bool hardened = false) {
    if (hardened) REQUIRE(store_->harden().ok());
    close();
    machine_.rows.crash();
  }
  // Takes the shard whoever holds it, as a keeper does when that node is gone.
  void take(std::uint32_t shard = kShard) {
    const std::array shards{shard};
    const auto mark = tier_.marks(shards).value().front();
    const ShardMark own{mark ? mark->epoch + 1 : 1, 0, false, mark ? mark->node : "",
                        name_ + std::to_string(starts_)};
    REQUIRE(tier_.change_marks(std::array{SharedTier::Change{shard, mark, own}}).ok());
    Catalog::LoadedShard loaded{shard, !mark || mark->node.empty() || mark->node == name_, {}};
    REQUIRE(
        tier_
            .scan(
                shards,
                [&](std::uint32_t, std::string_view key, Bytes value) -> Status {
                  const auto name = from_shared_key(key);
                  REQUIRE(name);
                  loaded.rows.push_back({name->first, name->second, {value.begin(), value.end()}});
                  return {};
                })
            .ok());
    uploads->begin(shard, own, name_);
    REQUIRE(catalog->register_model(made().tenant, made().model).ok());
    REQUIRE(catalog->load_shard(std::move(loaded)).ok());
  }
  std::vector<SegmentId> drop(std::uint32_t shard = kShard) {
    std::vector<bool> bits(kShards);
    bits[shard] = true;
    auto gone = catalog->drop_shards(bits);
    (void)uploads->end(shard, clock_.now() + kLong);
    return gone;
  }
  Status put(const NewSegment& segment) {
    before_ = uploads->held(segment.row.shard.value());
    return catalog->commit(segment.row, segment.payload(), Durability::kShared);
  }
  // The status of the copies of all changes since the last put of the shard.
  Status copied(std::uint32_t shard = kShard) {
    Uploads::Held since = uploads->held(shard);
    if (since.hold == before_.hold) since = before_;
    return copied_since(since, shard);
  }
  Status copied_since(const Uploads::Held& since, std::uint32_t shard = kShard) {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> result;
    uploads->when_copied(shard, since, [&](Status status) {
      const std::lock_guard lock(mutex);
      result = std::move(status);
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    REQUIRE(clock_.wait(changed, lock, clock_.now() + kLong, [&] { return result.has_value(); }));
    return *result;
  }
  bool has(const NewSegment& segment) {
    const auto row = catalog->segment(made().tenant, segment.row.id);
    if (!row.ok()) return false;
    for (std::uint32_t l = 0; l < segment.layers.size(); ++l) {
      std::vector<std::byte> read(segment.layers[l].size());
      bool was_here = true;
      if (!catalog->peek_layer(**row, l, read, &was_here).ok() || read != segment.layers[l]) {
        return false;
      }
      if (!was_here) catalog->keep_layer(**row, l, read);  // as ColdReads does
    }
    return true;
  }

  // The bytes of the segment that the node's own store has.
  std::uint64_t local_bytes(const NewSegment& segment) const {
    return catalog->local_bytes(segment.row.id);
  }
  const std::string& name() const { return name_; }

  std::function<void()> on_stage;  // called before a value is staged
  std::optional<Uploads> uploads;
  std::unique_ptr<Catalog> catalog;

 private:
  MemoryTier& tier_;
  const std::string name_;
  SystemClock clock_;
  MemoryMachine machine_;
  std::unique_ptr<Store> store_;
  Uploads::Held before_;  // the last put
  int starts_ = 0;
};

}  // namespace precis::testing
