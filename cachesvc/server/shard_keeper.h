// Keeps the node's shards as the table of owners says, if the nodes share a storage: takes and
// loads those that it owns by now, and gives up those that it does not own any more
// (docs/design/cluster.md, Shared storage).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/shard_groups.h"
#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/shared/uploads.h"

namespace precis {

class ShardKeeper {
 public:
  struct Parts {
    cluster::Membership& membership;
    SharedTier& tier;
    Uploads& uploads;
    Catalog& catalog;
    std::string disk;  // names the local store, for always
    Runtime& runtime;
    Log& log;
    // Called on any thread with segments that are not stored here any more.
    std::function<void(std::vector<SegmentId>)> forget;
    std::function<void()> loaded;  // called on any thread when shards were loaded
    std::chrono::seconds lease{};  // a node waits so long until its changes are copied
  };
  explicit ShardKeeper(Parts parts);
  // Waits until what is stored here is copied, at most a lease, and gives up all shards.
  ~ShardKeeper();

  // Any thread. kMoved if another node owns the shard, or if it is not loaded. Then it is loaded or
  // given up before others for a while.
  Status check(std::uint32_t shard);
  // Any thread. A put of the shard is under way while the result exists, which may outlive the
  // keeper. The shard stays for its commit, about half a lease longer than by the table of owners.
  // Call check() afterwards: the shard may have left before.
  std::shared_ptr<const void> begin_put(std::uint32_t shard);
  // [blocking] Any thread. Serves these segments of another node's shard for some seconds, as far
  // as the shared storage has them.
  Status take_guests(const std::string& tenant, std::uint32_t shard,
                     std::span<const SegmentId> segments);
  struct State {
    std::uint32_t loading = 0;  // shards that the node owns, and that are not loaded
    Status problem;
  };
  State state() const;
  const std::string& disk() const { return parts_.disk; }

 private:
  using Owned = cluster::Membership::Owned;
  using Shards = ShardGroups::Shards;
  // How often it looks at the table of owners.
  static constexpr std::chrono::milliseconds kBeat{20};

  void run();
  void step();
  void drop(const Shards& shards);
  void join_again(const Owned& owned);
  Status release(const Shards& shards, Clock::Time until);
  Status release_late(const Owned& owned);
  void note_released(const Shards& shards);
  void take(const Owned& owned, const Shards& wanted);
  Status prepare(const Owned& owned);
  Status take_group(const Owned& owned, const Shards& shards);
  Status load(std::span<const SharedTier::Change> changes);
  Status for_groups(const Shards& shards, const ShardGroups::Work& work);
  Shards surplus(const Owned& owned);
  bool is_held(std::uint32_t shard) const { return held_[shard].load(); }
  bool is_stopping() const;
  void note(const Status& status);
  Shards held() const;

  const Parts parts_;
  const Clock& clock_;
  std::array<std::atomic<bool>, kShards> held_{};
  using Counts = std::array<std::atomic<std::uint32_t>, kShards>;
  const std::shared_ptr<Counts> puts_ = std::make_shared<Counts>();  // under way
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::string instance_;  // with which the shards are held
  Status problem_;
  std::uint64_t newest_epoch_ = 0;      // of a mark that this node could not take
  std::set<std::uint32_t> unreleased_;  // not held any more, and the marks still say so
  bool stopping_ = false;
  std::atomic<bool> is_closing_ = false;  // the destructor gives up the shards
  std::atomic<bool> has_loaded_ = false;  // shards, which is not told yet
  // Used by run() alone.
  struct Prepared {
    std::uint64_t epoch = 0;
    std::string instance;
    Clock::Time at;
  };
  std::optional<Prepared> prepared_;
  std::optional<Clock::Time> behind_since_;          // the table of owners is older than marks
  std::map<std::uint32_t, Clock::Time> kept_since_;  // for puts, though others own them
  std::chrono::milliseconds rest_ = kBeat;           // between two steps

  ShardGroups groups_;
  std::unique_ptr<Executor> thread_;  // the last: it ends first
};

}  // namespace precis
