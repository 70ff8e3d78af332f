// Removes objects of the shared storage that no row names: a node wrote them, and died before it
// wrote their rows (docs/design/cluster.md, Orphans). An object goes if two sweeps have found it
// so, some time apart, while this node held its shard, and if no later row can name it. Objects of
// output projections stay.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/catalog/shard_catalog.h"
#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/shared/uploads.h"

namespace precis {

class Orphans {
 public:
  // All outlive it.
  struct Parts {
    SharedTier& tier;
    Uploads& uploads;
    ShardCatalog& catalog;
    const Clock& clock;
    std::chrono::nanoseconds age;  // between the two sweeps, at least, by the monotonic clock
  };
  explicit Orphans(Parts parts) : parts_(parts) {}
  ~Orphans() { stop(); }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  struct Done {
    std::uint64_t removed = 0;  // objects
    bool again = false;         // there may be more to remove after `age`
    Status problem;             // why some were not removed
  };
  // [blocking] Lists all objects of the shared storage. One call at a time.
  Done sweep();
  // Any thread. Ends sweep() soon, also later ones.
  void stop();

 private:
  struct Object {
    std::uint32_t shard = 0;
    std::uint64_t hold = 0, size_bytes = 0;
    Clock::Time since{};  // when it was first found without a row in this hold
  };
  using Objects = std::map<std::string, Object>;
  struct Shard;  // with objects that may go
  using Shards = std::map<std::uint32_t, Shard>;

  Result<Objects> find_unnamed() const;
  Status remove_of_group(Shards shards, Done& done);
  Status leave_named(Shards& shards) const;
  Status remove(std::uint32_t number, const Shard& shard, const std::vector<Upload::Object>& some);
  bool is_stopped() const;

  const Parts parts_;
  Objects found_;  // by the last sweep
  // Shared with callbacks that come late.
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_stopped = false;  // guarded by mutex
  };
  const std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

}  // namespace precis
