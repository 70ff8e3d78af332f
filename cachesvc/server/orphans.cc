#include "cachesvc/server/orphans.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/shared/tiered_store.h"

namespace precis {
namespace {

// The rest is found when these are removed.
constexpr std::size_t kFoundMax = 100'000, kFoundOfShardMax = 1024;
// The objects of a shard that are removed at once: changes of the shard wait meanwhile.
constexpr std::size_t kObjectsAtOnce = 64;
constexpr std::chrono::seconds kAnswerWait{30};

using Rows = std::unordered_map<SegmentId, ShardCatalog::SegmentPtr>;

Rows rows_of(ShardCatalog& catalog) {
  Rows rows;
  for (auto& row : catalog.eviction_order({})) rows[row->id] = std::move(row);
  return rows;
}

bool names(const SegmentRow& row, std::uint32_t layer, const std::string& object) {
  return layer < row.layer_bytes.size() && object_name(row, layer) == object;
}

// Whether the row names the object, or a later version of the row may. If a node dies during a
// trim, a merge or a put, another try makes the same names again. The time in such a name is not
// before the row's.
bool may_name(const SegmentRow& row, const std::string& object) {
  const ObjectName name = object_in(object).value();
  if (name.segment != row.id) return false;
  return names(row, name.layer, object) || row.created_unix_ms <= name.created_unix_ms;
}

bool may_be_named(const Rows& rows, const std::string& object) {
  const auto row = rows.find(object_in(object)->segment);
  return row != rows.end() && may_name(*row->second, object);
}

Status stopping() { return Status::unavailable("the service is stopping"); }

}  // namespace

struct Orphans::Shard {
  std::uint64_t hold = 0;
  std::optional<ShardMark> mark;                 // before its rows were read
  std::map<std::string, std::uint64_t> objects;  // sizes by name
  std::set<SegmentId> segments;                  // of these objects
};

void Orphans::stop() {
  {
    const std::lock_guard lock(waiting_->mutex);
    waiting_->is_stopped = true;
  }
  waiting_->changed.notify_all();
}

bool Orphans::is_stopped() const {
  const std::lock_guard lock(waiting_->mutex);
  return waiting_->is_stopped;
}

// The objects of shards that are held, without those that the catalog's rows may name.
Result<Orphans::Objects> Orphans::find_unnamed() const {
  std::vector<std::uint64_t> holds;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    holds.push_back(parts_.uploads.held(shard).hold);
  }
  Objects found;
  std::vector<std::size_t> counts(kShards);
  Rows rows = rows_of(parts_.catalog);
  PRECIS_TRY(parts_.tier.list_objects([&](const std::string& name, std::uint64_t size_bytes) {
    if (is_stopped()) return stopping();
    const auto object = object_in(name);
    if (!object || holds[object->shard] == 0 || may_be_named(rows, name)) return Status();
    if (!found.contains(name)) {
      if (found.size() == kFoundMax || counts[object->shard] == kFoundOfShardMax) return Status();
      ++counts[object->shard];
    }
    Object& each = found[name];
    each.shard = object->shard;
    each.hold = holds[object->shard];
    each.size_bytes = std::max(each.size_bytes, size_bytes);
    return Status();
  }));
  rows = rows_of(parts_.catalog);  // also of what was put meanwhile
  std::erase_if(found, [&](const auto& each) { return may_be_named(rows, each.first); });
  return found;
}

Orphans::Done Orphans::sweep() {
  Done done;
  auto found = find_unnamed();
  if (!found.ok()) {
    done.problem = found.status();
    done.again = true;
    return done;
  }
  const Clock::Time now = parts_.clock.now();
  std::map<std::uint32_t, Shards> groups;
  for (auto& [name, object] : *found) {
    const auto before = found_.find(name);
    const bool is_known = before != found_.end() && before->second.hold == object.hold;
    object.since = is_known ? before->second.since : now;
    if (!is_known || now - object.since < parts_.age) {
      done.again = true;
      continue;
    }
    Shard& shard = groups[group_of(object.shard)][object.shard];
    shard.hold = object.hold;
    shard.objects[name] = object.size_bytes;
    shard.segments.insert(object_in(name)->segment);
  }
  found_ = std::move(*found);
  for (auto& [number, shards] : groups) {
    const Status status = remove_of_group(std::move(shards), done);
    if (done.problem.ok()) done.problem = status;
    if (status.code() == StatusCode::kUnavailable) break;
  }
  return done;
}

Status Orphans::remove_of_group(Shards shards, Done& done) {
  // The marks come before the rows, so that a later change of the rows changes a mark.
  for (auto& [number, shard] : shards) shard.mark = parts_.uploads.settled(number, shard.hold);
  std::erase_if(shards, [](const auto& each) { return !each.second.mark; });
  if (shards.empty()) return {};
  PRECIS_TRY(leave_named(shards));
  for (const auto& [number, shard] : shards) {
    if (is_stopped()) return stopping();
    if (shard.objects.empty()) continue;
    std::vector<Upload::Object> some;
    for (const auto& [name, size_bytes] : shard.objects) {
      if (some.size() < kObjectsAtOnce) some.push_back({name, size_bytes});
    }
    const Status removed = remove(number, shard, some);
    // A shard that has changed, or has another holder now, is not swept this time.
    const bool is_changed =
        removed.code() == StatusCode::kConflict || removed.code() == StatusCode::kMoved;
    done.again = done.again || !removed.ok();
    if (!removed.ok() && !is_changed) return removed;
    if (removed.ok()) done.removed += some.size();
    done.again = done.again || some.size() < shard.objects.size();
  }
  return {};
}

// Leaves out the objects that rows of the shared storage may name. The catalog may have a later row
// than the shared storage, if the later row's objects could not be copied. A shard with a row that
// this version does not understand is left out, because the row may name any object.
Status Orphans::leave_named(Shards& shards) const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, shard] : shards) numbers.push_back(number);
  std::set<std::uint32_t> unread;
  PRECIS_TRY(parts_.tier.scan(
      numbers, [&](std::uint32_t number, std::string_view key, Bytes value) -> Status {
        const auto name = from_shared_key(key);
        if (name && name->first == Table::kSessions) return {};
        const auto row = decode_segment_row(value);
        const bool is_known = name && name->first == Table::kSegments && row.ok() &&
                              segment_key(row->id) == name->second && row->shard == number;
        if (!is_known) unread.insert(number);
        if (!is_known || !shards.at(number).segments.contains(row->id)) return {};
        std::erase_if(shards.at(number).objects,
                      [&](const auto& object) { return may_name(*row, object.first); });
        return {};
      }));
  for (const std::uint32_t number : unread) shards.erase(number);
  return {};
}

Status Orphans::remove(std::uint32_t number, const Shard& shard,
                       const std::vector<Upload::Object>& some) {
  const auto answer = std::make_shared<std::optional<Status>>();  // guarded by waiting_->mutex
  parts_.uploads.remove(number, shard.hold, *shard.mark, some,
                        [answer, waiting = waiting_](Status status) {
                          {
                            const std::lock_guard lock(waiting->mutex);
                            *answer = std::move(status);
                          }
                          waiting->changed.notify_all();
                        });
  std::unique_lock lock(waiting_->mutex);
  const auto is_over = [&] { return answer->has_value() || waiting_->is_stopped; };
  parts_.clock.wait(waiting_->changed, lock, parts_.clock.now() + kAnswerWait, is_over);
  if (*answer) return **answer;
  return waiting_->is_stopped ? stopping()
                              : Status::unavailable("the shared storage does not answer in time");
}

}  // namespace precis
