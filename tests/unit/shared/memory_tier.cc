#include "tests/unit/shared/memory_tier.h"

#include <algorithm>
#include <utility>

namespace precis::testing {
namespace {

void check_one_group(std::uint32_t first, std::uint32_t shard) {
  PRECIS_CHECK(shard < kShards && group_of(shard) == group_of(first));
}

}  // namespace

Status MemoryTier::begin() {
  ++calls_;
  return failing_ ? Status::unavailable("the shared storage in memory is told to fail") : Status();
}

Status MemoryTier::end() const {
  return losing_ ? Status::unavailable("the shared storage in memory is told to lose answers")
                 : Status();
}

std::size_t MemoryTier::objects() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

bool MemoryTier::has_object(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return objects_.contains(name);
}

void MemoryTier::after_scan(std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  after_scan_ = std::move(run);
}

void MemoryTier::lose_objects() {
  const std::lock_guard lock(mutex_);
  objects_.clear();
}

std::optional<ShardMark> MemoryTier::mark_of(std::uint32_t shard) const {
  const auto found = marks_.find(shard);
  return found == marks_.end() ? std::nullopt : std::optional(found->second);
}

void MemoryTier::apply(Table& table, const SharedBatch& batch) {
  for (const auto& [key, value] : batch.puts) table[key] = value;
  for (const std::string& key : batch.deletes) table.erase(key);
}

Result<std::vector<std::optional<ShardMark>>> MemoryTier::marks(
    std::span<const std::uint32_t> shards) {
  PRECIS_TRY(begin());
  const std::lock_guard lock(mutex_);
  std::vector<std::optional<ShardMark>> found;
  for (const std::uint32_t shard : shards) {
    check_one_group(shards.front(), shard);
    found.push_back(mark_of(shard));
  }
  return found;
}

Status MemoryTier::change_marks(std::span<const Change> changes) {
  PRECIS_TRY(begin());
  const std::lock_guard lock(mutex_);
  bool expected = true, done = true;
  for (const Change& change : changes) {
    check_one_group(changes.front().shard, change.shard);
    const auto now = mark_of(change.shard);
    expected = expected && now == change.from;
    done = done && now == change.to;
  }
  if (!expected && !done) return Status::conflict("a mark is not the one that was read");
  for (const Change& change : changes) marks_[change.shard] = change.to;
  return end();
}

Status MemoryTier::scan(std::span<const std::uint32_t> shards, const Visit& row) {
  PRECIS_TRY(begin());
  if (failing_scans_) return Status::corruption("rows in memory are told to be damaged");
  std::map<std::uint32_t, Table> copy;
  std::function<void()> run;
  {
    const std::lock_guard lock(mutex_);
    run = std::exchange(after_scan_, nullptr);
    for (const std::uint32_t shard : shards) {
      check_one_group(shards.front(), shard);
      const auto found = rows_.find(shard);
      if (found != rows_.end()) copy[shard] = found->second;
    }
  }
  if (run) run();
  for (const auto& [shard, table] : copy) {
    for (const auto& [key, value] : table) PRECIS_TRY(row(shard, key, value));
  }
  return {};
}

Result<std::vector<std::optional<std::vector<std::byte>>>> MemoryTier::rows(
    std::uint32_t shard, std::span<const std::string> keys) {
  PRECIS_TRY(begin());
  if (damaged_ == shard) return Status::corruption("rows in memory are told to be damaged");
  const std::lock_guard lock(mutex_);
  std::vector<std::optional<std::vector<std::byte>>> values;
  for (const std::string& key : keys) {
    const Table& table = rows_[shard];
    const auto row = table.find(key);
    values.emplace_back(row == table.end() ? std::nullopt : std::optional(row->second));
  }
  return values;
}

Status MemoryTier::write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) {
  PRECIS_TRY(begin());
  const std::lock_guard lock(mutex_);
  check_one_group(shard, shard);
  ShardMark to = from;
  ++to.sequence;
  const auto now = mark_of(shard);
  if (now == to) return end();
  if (now != from) {
    return Status::moved("write rows of shard " + std::to_string(shard) + ": " +
                         (now ? "node '" + now->node + "' holds it" : "nobody holds it"));
  }
  if (full_ && !batch.puts.empty()) return Status::out_of_space("the shared storage is full");
  apply(rows_[shard], batch);
  marks_[shard] = to;
  return end();
}

Status MemoryTier::write_object(const std::string& name, Bytes value) {
  PRECIS_TRY(begin());
  if (refusing_) return Status::corruption("refused " + name);
  if (full_) return Status::out_of_space("the shared storage is full");
  const std::lock_guard lock(mutex_);
  objects_[name].assign(value.begin(), value.end());
  return end();
}

Status MemoryTier::read_object(const std::string& name, MutableBytes into) {
  PRECIS_TRY(begin());
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(name);
  if (found == objects_.end()) return Status::not_found("there is no object " + name);
  if (found->second.size() != into.size()) {
    return Status::corruption("the object " + name + " has " +
                              std::to_string(found->second.size()) + " bytes, not " +
                              std::to_string(into.size()));
  }
  std::ranges::copy(found->second, into.begin());
  return {};
}

Status MemoryTier::remove_object(const std::string& name, std::uint64_t) {
  PRECIS_TRY(begin());
  if (refusing_removals_) return Status::unavailable("no answer");
  const std::lock_guard lock(mutex_);
  objects_.erase(name);
  return end();
}

Status MemoryTier::list_objects(const VisitObject& object) {
  PRECIS_TRY(begin());
  ++lists_;
  std::vector<std::pair<std::string, std::uint64_t>> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, value] : objects_) found.emplace_back(name, value.size());
  }
  for (const auto& [name, size_bytes] : found) PRECIS_TRY(object(name, size_bytes));
  return {};
}

void MemoryTier::clear() {
  const std::lock_guard lock(mutex_);
  marks_.clear();
  rows_.clear();
  common_.clear();
  objects_.clear();
}

Status MemoryTier::write_common(const SharedBatch& batch) {
  PRECIS_TRY(begin());
  if (full_ && !batch.puts.empty()) return Status::out_of_space("the shared storage is full");
  const std::lock_guard lock(mutex_);
  apply(common_, batch);
  return end();
}

Status MemoryTier::scan_common(
    const std::function<Status(std::string_view key, Bytes value)>& row) {
  PRECIS_TRY(begin());
  Table copy;
  {
    const std::lock_guard lock(mutex_);
    copy = common_;
  }
  for (const auto& [key, value] : copy) PRECIS_TRY(row(key, value));
  return {};
}

}  // namespace precis::testing
