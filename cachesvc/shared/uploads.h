// Copies the changes of a node's shards to the storage that nodes share, behind the local store.
// The changes of a shard are copied in their order, one after another; shards do not wait for each
// other. A change that was copied survives the loss of the node.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/shared/shard_copier.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis {

// Thread-safe.
class Uploads {
 public:
  // `tier` and `clock` outlive it. At most about `bytes_max` of values wait (is_full()).
  Uploads(SharedTier& tier, const Clock& clock, std::unique_ptr<Executor> threads,
          std::uint64_t bytes_max);
  ~Uploads();  // gives up what waits

  // The shard is held with this mark from now on. `node`: of the mark, from the first change on.
  void begin(std::uint32_t shard, ShardMark mark, std::string node);
  // `hold` numbers the times that the shard was held; 0: it is not. `changes`: those of this hold.
  struct Held {
    std::uint64_t hold = 0, changes = 0;
  };
  Held held(std::uint32_t shard) const;
  // [blocking] The shard gets no more changes. Waits until all are copied, at most until `until`.
  // Returns the mark now; none if the shard is held by another node, or something is not copied.
  std::optional<ShardMark> end(std::uint32_t shard, Clock::Time until);

  // Ignored if the shard is not held.
  void add(std::uint32_t shard, Upload upload);
  // Calls `done` once all changes of the shard in this hold so far are copied, or can't be: kMoved
  // if that hold has ended, kCorruption if the local copy of one after `since` is damaged,
  // kOutOfSpace if the storage is full: then they are copied once it has space. A caller takes
  // `since` before its own change. `done` is called on any thread, possibly at once.
  void when_copied(std::uint32_t shard, const Held& since, std::function<void(Status)> done);
  // The mark of the shard, if all changes of this hold are copied, and this node has made the last
  // change of the shard; else none.
  std::optional<ShardMark> settled(std::uint32_t shard, std::uint64_t hold) const;
  // Removes objects that no row of the shard names, if nothing was added to the shard since it was
  // settled() with this mark: else kConflict. It writes the mark first, with the next sequence, as
  // with rows. So nothing is removed if another node has taken the shard. `done` as in
  // when_copied(), or why not all of them were removed.
  void remove(std::uint32_t shard, std::uint64_t hold, const ShardMark& from,
              std::vector<Upload::Object> objects, std::function<void(Status)> done);
  // From now on nobody waits: callers get kUnavailable. Copying goes on.
  void stop_waiting();
  // So much waits that callers should wait for their own changes.
  bool is_full() const;

  // The shards that other nodes have taken, since the last call.
  std::vector<std::uint32_t> take_lost();
  struct Lag {
    std::uint64_t bytes = 0, changes = 0;
    Status problem;  // why nothing can be copied now
  };
  Lag lag() const;

 private:
  using Done = std::function<void(Status)>;
  struct Waiter {
    std::uint64_t since = 0;
    Done done;
  };
  struct Waiting {
    Upload upload;
    std::vector<Waiter> waiters = {};
    Done removed = {};  // of remove(), which alone is told of objects that could not be removed
  };
  struct Shard {
    ShardMark mark;
    std::string node;
    std::uint64_t hold = 0;
    std::deque<Waiting> waiting;
    // The last change that was not copied and waits no more, and why.
    std::uint64_t changes = 0, failed_change = 0;
    Status failed;
    std::shared_ptr<ShardCopier> copier;
    bool is_queued = false, is_running = false, is_lost = false, is_ending = false;

    Status copied(std::uint64_t since) const { return failed_change > since ? failed : Status(); }
  };

  void work(std::uint32_t shard);
  void note_copied(Shard& shard, const ShardCopier::Copied& copied);
  static std::vector<Upload> first_of(const Shard& shard);
  bool attempt(std::unique_lock<std::mutex>& lock, std::uint32_t number, Shard& shard);
  bool pause();
  static void tell_waiting(Shard& shard, const Status& status);
  void give_up(Shard& shard, const Status& why);
  void start(std::uint32_t number, Shard& shard);
  void push(std::uint32_t number, Shard& shard, Waiting change);
  const ShardMark* settled_mark(std::uint32_t shard, std::uint64_t hold) const;

  SharedTier& tier_;
  const Clock& clock_;
  const std::uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::uint32_t, Shard> shards_;
  bool stopping_ = false, nobody_waits_ = false;
  std::uint64_t bytes_ = 0, changes_ = 0, holds_ = 0;
  std::vector<std::uint32_t> lost_;
  std::map<std::uint32_t, Status> failing_;  // why shards can't be copied now

  std::unique_ptr<Executor> threads_;  // the last: it ends first
};

}  // namespace precis
