#include "cachesvc/server/shard_keeper.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/server/claim_pool.h"
#include "cachesvc/shared/tiered_store.h"

namespace precis {
namespace {

// A segment of another node is served so long; after that, its row is read again.
constexpr std::uint64_t kGuestNs = 5'000'000'000;
constexpr std::chrono::seconds kPrepareAgain{1};
constexpr std::chrono::milliseconds kPause{200};  // after a failure

std::vector<bool> bits_of(std::span<const std::uint32_t> shards) {
  std::vector<bool> bits(kShards);
  for (const std::uint32_t shard : shards) bits[shard] = true;
  return bits;
}

}  // namespace

ShardKeeper::ShardKeeper(Parts parts)
    : parts_(std::move(parts)),
      clock_(parts_.runtime.clock()),
      groups_(parts_.runtime, parts_.disk),
      thread_(parts_.runtime.make_executor("shards", 1)) {
  thread_->post([this] { run(); });
}

ShardKeeper::~ShardKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.reset();
  is_closing_ = true;
  const Shards shards = held();
  drop(shards);
  (void)release(shards, clock_.now() + parts_.lease);
}

Status ShardKeeper::check(std::uint32_t shard) {
  Status status = parts_.membership.check_owner(shard);
  if (status.ok()) {
    // A node that has joined again could hold a shard that others have changed meanwhile.
    const std::lock_guard lock(mutex_);
    if (is_held(shard) && parts_.membership.is_instance(instance_)) return {};
    status = Status::moved("the shard " + std::to_string(shard) + " is being loaded");
  }
  groups_.note_asked(shard);
  return status;
}

std::shared_ptr<const void> ShardKeeper::begin_put(std::uint32_t shard) {
  std::atomic<std::uint32_t>& count = (*puts_)[shard];
  ++count;
  return {&count, [puts = puts_, &count](const void*) { --count; }};
}

Status ShardKeeper::take_guests(const std::string& tenant, std::uint32_t shard,
                                std::span<const SegmentId> segments) {
  const std::uint64_t until_ns = clock_.monotonic_ns() + kGuestNs;
  std::vector<std::string> keys;
  for (const SegmentId& id : segments)
    keys.push_back(shared_key(Table::kSegments, segment_key(id)));
  PRECIS_ASSIGN(auto found, parts_.tier.rows(shard, keys));
  std::vector<Catalog::StoredRow> rows;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i])
      rows.push_back({Table::kSegments, segment_key(segments[i]), *std::move(found[i])});
  }
  parts_.catalog.keep_guests(tenant, std::move(rows), until_ns);
  return {};
}

ShardKeeper::State ShardKeeper::state() const {
  const Owned owned = parts_.membership.owned();
  State state;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t shard = 0; shard < owned.shards.size(); ++shard) {
    const bool is_loaded = is_held(shard) && instance_ == owned.instance;
    if (owned.shards[shard] && !is_loaded) ++state.loading;
  }
  state.problem = problem_;
  return state;
}

ShardKeeper::Shards ShardKeeper::held() const {
  Shards shards;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    if (is_held(shard)) shards.push_back(shard);
  }
  return shards;
}

void ShardKeeper::run() {
  for (;;) {
    step();
    std::unique_lock lock(mutex_);
    const auto wait = problem_.ok() ? rest_ : kPause;
    if (clock_.wait(changed_, lock, clock_.now() + wait, [this] { return stopping_; })) return;
  }
}

void ShardKeeper::step() {
  if (auto ended = parts_.catalog.end_guests(); !ended.empty()) parts_.forget(std::move(ended));
  const Shards taken = parts_.uploads.take_lost();
  if (!taken.empty()) {
    drop(taken);
    for (const std::uint32_t shard : taken) (void)parts_.uploads.end(shard, clock_.now());
  }
  const Owned owned = parts_.membership.owned();
  if (owned.instance != instance_) join_again(owned);
  if (!owned.is_member || owned.shards.empty()) return;
  const Shards given = surplus(owned);
  Shards wanted;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    if (!is_held(shard) && owned.shards[shard]) wanted.push_back(shard);
  }
  Status status;
  if (!given.empty()) {
    drop(given);
    status = release(given, clock_.now() + parts_.lease);
  }
  if (const Status late = release_late(owned); status.ok()) status = late;
  if (!wanted.empty()) return take(owned, wanted);
  rest_ = kBeat;
  note(status);
}

// The shards that others own, without those that puts under way may keep.
ShardKeeper::Shards ShardKeeper::surplus(const Owned& owned) {
  const Clock::Time now = clock_.now();
  const auto stays = [&](std::uint32_t shard) { return owned.shards[shard] || !is_held(shard); };
  std::erase_if(kept_since_, [&](const auto& kept) { return stays(kept.first); });
  Shards shards;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    if (stays(shard)) continue;
    const Clock::Time since = kept_since_.emplace(shard, now).first->second;
    if ((*puts_)[shard] == 0 || now - since >= parts_.lease / 2) shards.push_back(shard);
  }
  return shards;
}

// The shards have no more changes, and nobody finds them here.
void ShardKeeper::drop(const Shards& shards) {
  if (shards.empty()) return;
  for (const std::uint32_t shard : shards) held_[shard] = false;
  parts_.forget(parts_.catalog.drop_shards(bits_of(shards)));
}

// The lease has ended meanwhile, so others may have held these shards.
void ShardKeeper::join_again(const Owned& owned) {
  const Shards shards = held();
  drop(shards);
  for (const std::uint32_t shard : shards) (void)parts_.uploads.end(shard, clock_.now());
  const std::lock_guard lock(mutex_);
  instance_ = owned.instance;
}

// A change that was not copied in time stays in the local store, in case the shard comes back.
Status ShardKeeper::release(const Shards& shards, Clock::Time until) {
  {
    const std::lock_guard lock(mutex_);
    unreleased_.insert(shards.begin(), shards.end());
  }
  return for_groups(shards, [&](const Shards& group) -> Status {
    std::vector<SharedTier::Change> changes;
    Shards copied;
    for (const std::uint32_t shard : group) {
      const auto mark = parts_.uploads.end(shard, until);
      if (!mark) continue;
      changes.push_back({shard, *mark, *mark});
      changes.back().to.released = true;
      copied.push_back(shard);
    }
    if (changes.empty()) return {};
    PRECIS_TRY(parts_.tier.change_marks(changes));
    note_released(copied);
    // After a restart the node probably takes them again, and uses what has not changed meanwhile.
    if (!is_closing_) parts_.catalog.remove_here(bits_of(copied));
    return {};
  });
}

void ShardKeeper::note_released(const Shards& shards) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t shard : shards) unreleased_.erase(shard);
}

// Gives up shards whose changes were not copied in time, so that others can take them.
Status ShardKeeper::release_late(const Owned& owned) {
  Shards shards;
  {
    const std::lock_guard lock(mutex_);
    // release() gives up those that are held.
    std::erase_if(unreleased_,
                  [&](std::uint32_t shard) { return owned.shards[shard] || is_held(shard); });
    shards.assign(unreleased_.begin(), unreleased_.end());
  }
  return for_groups(shards, [&](const Shards& group) -> Status {
    for (const std::uint32_t shard : group) (void)parts_.uploads.end(shard, clock_.now());
    PRECIS_ASSIGN(const auto marks, parts_.tier.marks(group));
    std::vector<SharedTier::Change> changes;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!marks[i] || marks[i]->instance != owned.instance || marks[i]->released) continue;
      changes.push_back({group[i], marks[i], *marks[i]});
      changes.back().to.released = true;
    }
    if (!changes.empty()) PRECIS_TRY(parts_.tier.change_marks(changes));
    note_released(group);
    return {};
  });
}

void ShardKeeper::take(const Owned& owned, const Shards& wanted) {
  Status status = prepare(owned);
  if (status.ok()) {
    status = for_groups(wanted, [&](const Shards& group) { return take_group(owned, group); });
  }
  const bool has_loaded = has_loaded_.exchange(false);
  // Shards that others still hold are looked for less often, because each look reads the storage.
  rest_ = has_loaded ? kBeat : std::min(2 * rest_, kPause);
  if (has_loaded) parts_.loaded();
  // Another node may know the newest table of owners a moment before this one.
  const bool is_behind = status.code() == StatusCode::kConflict;
  if (!is_behind) behind_since_.reset();
  if (is_behind && !behind_since_) behind_since_ = clock_.now();
  const bool is_told = !is_behind || clock_.now() - *behind_since_ > parts_.lease;
  note(is_told ? status : Status());
  // Otherwise etcd was restored from a backup, and a new table ends that.
  if (!is_behind || !is_told) return;
  const std::lock_guard lock(mutex_);
  parts_.membership.raise_epoch(newest_epoch_ + 1);
}

// Once for each table of owners, and again after a while: shards of live nodes may take long.
Status ShardKeeper::prepare(const Owned& owned) {
  const Prepared now{owned.epoch, owned.instance, clock_.now()};
  const bool same = prepared_ && prepared_->epoch == now.epoch &&
                    prepared_->instance == now.instance && now.at - prepared_->at < kPrepareAgain;
  if (same) return {};
  // Segments whose model is not known are out of service.
  PRECIS_TRY(parts_.membership.agreed().catch_up());
  PRECIS_TRY(claim_pool(parts_.tier, parts_.catalog.cluster_id()));
  prepared_ = now;
  return {};
}

// Shards that a live node still holds are left for later.
Status ShardKeeper::take_group(const Owned& owned, const Shards& shards) {
  PRECIS_ASSIGN(const auto marks, parts_.tier.marks(shards));
  std::vector<SharedTier::Change> changes;
  Status newer;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto& mark = marks[i];
    if (mark && mark->epoch > owned.epoch) {
      {
        const std::lock_guard lock(mutex_);
        newest_epoch_ = std::max(newest_epoch_, mark->epoch);
      }
      newer =
          Status::conflict("shard " + std::to_string(shards[i]) + " was taken by table " +
                           std::to_string(mark->epoch) + " of owners, and etcd has table " +
                           std::to_string(owned.epoch) +
                           ": it was restored from an older backup. The nodes make a new table");
      continue;
    }
    const bool is_free = !mark || mark->released || mark->instance == owned.instance ||
                         !owned.instances.contains(mark->instance);
    if (is_free) {
      const std::string node = mark ? mark->node : "";  // until the first change
      changes.push_back({shards[i], mark, {owned.epoch, 0, false, node, owned.instance}});
    }
  }
  if (!changes.empty()) PRECIS_TRY(load(changes));
  return newer;
}

Status ShardKeeper::load(std::span<const SharedTier::Change> changes) {
  {
    // If other nodes own them before they are loaded here, release_late() gives them up.
    const std::lock_guard lock(mutex_);
    for (const SharedTier::Change& change : changes) unreleased_.insert(change.shard);
  }
  const Status taken = parts_.tier.change_marks(changes);
  if (taken.code() == StatusCode::kConflict) return {};  // again in the next step
  PRECIS_TRY(taken);
  std::map<std::uint32_t, Catalog::LoadedShard> loaded;
  Shards shards;
  for (const SharedTier::Change& change : changes) {
    const bool was_holder =
        !change.from || change.from->node.empty() || change.from->node == parts_.disk;
    loaded[change.shard] = {change.shard, was_holder, {}};
    shards.push_back(change.shard);
  }
  PRECIS_TRY(parts_.tier.scan(
      shards, [&](std::uint32_t shard, std::string_view key, Bytes value) -> Status {
        if (auto name = from_shared_key(key)) {
          loaded[shard].rows.push_back({name->first, std::move(name->second),
                                        std::vector<std::byte>(value.begin(), value.end())});
        }
        return {};
      }));
  Status status;
  for (const SharedTier::Change& change : changes) {
    (void)parts_.uploads.end(change.shard, clock_.now());  // if it was not given up in time
    parts_.uploads.begin(change.shard, change.to, parts_.disk);
    // An error is about segments that only the local store has.
    const Status found = parts_.catalog.load_shard(std::move(loaded.at(change.shard)));
    if (status.ok()) status = found;
    held_[change.shard] = true;
  }
  has_loaded_ = true;
  return status;
}

Status ShardKeeper::for_groups(const Shards& shards, const ShardGroups::Work& work) {
  return groups_.run(shards, work, [this] { return is_closing_ || !is_stopping(); });
}

bool ShardKeeper::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

// A problem that lasts is logged once.
void ShardKeeper::note(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    const bool same = problem_.code() == status.code();
    problem_ = status;
    if (same) return;
  }
  if (status.ok()) {
    parts_.log.info("shared storage in order", {});
  } else {
    parts_.log.warn("shared storage in trouble", {{"error", status.message()}});
  }
}

}  // namespace precis
