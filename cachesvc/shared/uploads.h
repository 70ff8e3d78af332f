// Copies the changes of a node's shards to the storage that nodes share, behind the local store.
// The changes of a shard are copied in their order, one after another; shards do not wait for each
// other. A change that was copied survives the loss of the node.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/store/store.h"

namespace precis {

// One change of a shard.
struct Upload {
  struct Object {
    std::string name;
    std::uint64_t size_bytes = 0;
  };
  std::vector<Object> added;  // their values, in the same order, are `values`
  std::shared_ptr<const KeptPayload> values;
  SharedBatch rows;
  std::vector<Object> removed;  // after the rows
};

// Thread-safe.
class Uploads {
 public:
  // `tier` and `clock` outlive it. At most about `bytes_max` of values wait (is_full()).
  Uploads(SharedTier& tier, const Clock& clock, std::unique_ptr<Executor> threads,
          std::uint64_t bytes_max);
  ~Uploads();  // gives up what waits

  // The shard is held with this mark from now on. `node`: of the mark, from the first change on.
  void begin(std::uint32_t shard, ShardMark mark, std::string node);
  // Numbers the times that the shard was held; 0: it is not.
  std::uint64_t hold(std::uint32_t shard) const;
  // [blocking] The shard gets no more changes. Waits until all are copied, at most until `until`.
  // Returns the mark now; none if the shard is held by another node, or something is not copied.
  std::optional<ShardMark> end(std::uint32_t shard, Clock::Time until);

  // Ignored if the shard is not held.
  void add(std::uint32_t shard, Upload upload);
  // Calls `done` once all changes of the shard in this hold so far are copied, or can't be: kMoved
  // if that hold has ended, kCorruption if the local copy of the last one is damaged, kOutOfSpace
  // if the storage is full: then they are copied once it has space. `done` is called on any thread,
  // possibly at once.
  void when_copied(std::uint32_t shard, std::uint64_t hold, std::function<void(Status)> done);
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
  struct Waiting {
    Upload upload;
    std::vector<Done> done = {};
    Done removed = {};  // of remove(), which alone is told of objects that could not be removed
  };
  // Changes that are being copied, and how many objects of each are written. A write that failed
  // may have been made, so the same changes are written again until it is known.
  struct Attempt {
    std::vector<Upload> some;
    std::vector<std::size_t> written;
  };
  // The keys of rows that are not shared, because the bytes that they name can't be copied. Only
  // the thread that copies the shard uses it.
  using Unshared = std::set<std::string>;
  struct Shard {
    ShardMark mark;
    std::string node;
    std::uint64_t hold = 0;
    std::deque<Waiting> waiting;
    Status last;  // what is wrong with the last change that waits no more
    std::shared_ptr<Attempt> attempt;
    std::shared_ptr<Unshared> unshared = std::make_shared<Unshared>();
    std::shared_ptr<std::atomic<bool>> is_abandoned;  // nobody waits for the attempt any more
    bool is_queued = false, is_running = false, is_lost = false, is_ending = false;
  };

  void work(std::uint32_t shard);
  struct Copied {
    Status status;
    std::vector<Status> each;  // what is wrong with single changes
    Status removed;            // why objects that no row names are left, which is no error
  };
  Copied copy(Attempt& attempt, std::uint32_t shard, const ShardMark& mark, Unshared& unshared,
              const std::atomic<bool>& is_abandoned);
  Status remove_objects(const std::map<std::string, std::uint64_t>& sizes,
                        const std::atomic<bool>& is_abandoned);
  Status name(std::uint32_t shard, const ShardMark& mark, const std::string& node);
  void note_copied(Shard& shard, const Copied& copied);
  static std::vector<Upload> first_of(const Shard& shard);
  Status copy_objects(const Upload& upload, std::size_t& written,
                      const std::atomic<bool>& is_abandoned);
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
