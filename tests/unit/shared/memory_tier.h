// A SharedTier in memory, for tests of its callers.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "cachesvc/shared/shared_tier.h"

namespace precis::testing {

// Thread-safe, and lives as long as all nodes that share it.
class MemoryTier final : public SharedTier {
 public:
  // All calls fail with kUnavailable and do nothing.
  void fail(bool failing) { failing_ = failing; }
  // Calls that change something do so, but return kUnavailable, as if the answer was lost.
  void lose_answers(bool losing) { losing_ = losing; }
  // Calls that add rows or objects fail with kOutOfSpace and do nothing.
  void fill(bool full) { full_ = full; }
  void clear();  // loses all
  // Writes of objects fail with kCorruption, as if the caller's bytes were damaged.
  void refuse_objects(bool refusing) { refusing_ = refusing; }
  // Removals of objects fail with kUnavailable.
  void refuse_removals(bool refusing) { refusing_removals_ = refusing; }
  // Scans of any shard, or reads of the rows of `shard`, fail with kCorruption.
  void fail_scans(bool failing) { failing_scans_ = failing; }
  void damage(std::uint32_t shard) { damaged_ = shard; }
  // All calls since the construction.
  std::uint64_t calls() const { return calls_; }
  std::size_t objects() const;
  bool has_object(const std::string& name) const;
  std::uint64_t lists() const { return lists_; }  // of objects, since the construction
  // Called once, when the next scan() has read its rows.
  void after_scan(std::function<void()> run);
  void lose_objects();

  Result<std::vector<std::optional<ShardMark>>> marks(
      std::span<const std::uint32_t> shards) override;
  Status change_marks(std::span<const Change> changes) override;
  Status scan(std::span<const std::uint32_t> shards, const Visit& row) override;
  Status write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) override;
  Status write_object(const std::string& name, Bytes value) override;
  Status read_object(const std::string& name, MutableBytes into) override;
  Status remove_object(const std::string& name, std::uint64_t size_bytes) override;
  Status list_objects(const VisitObject& object) override;
  Result<std::vector<std::optional<std::vector<std::byte>>>> rows(
      std::uint32_t shard, std::span<const std::string> keys) override;
  Status write_common(const SharedBatch& batch) override;
  Status scan_common(const std::function<Status(std::string_view key, Bytes value)>& row) override;

 private:
  using Table = std::map<std::string, std::vector<std::byte>, std::less<>>;

  Status begin();
  Status end() const;
  std::optional<ShardMark> mark_of(std::uint32_t shard) const;  // needs the mutex
  static void apply(Table& table, const SharedBatch& batch);

  std::atomic<bool> failing_ = false, losing_ = false, full_ = false, refusing_ = false,
                    refusing_removals_ = false, failing_scans_ = false;
  std::atomic<std::uint32_t> damaged_ = kShards;  // a shard, or none
  std::atomic<std::uint64_t> calls_ = 0, lists_ = 0;
  mutable std::mutex mutex_;  // guards the rest
  std::map<std::uint32_t, ShardMark> marks_;
  std::map<std::uint32_t, Table> rows_;  // by shard
  Table common_, objects_;
  std::function<void()> after_scan_;
};

}  // namespace precis::testing
