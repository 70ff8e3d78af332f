// Work on many shards of the shared storage, group by group, several groups at once. Groups with
// shards that clients ask for come first, so that these wait less while a node takes its shards.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/runtime.h"
#include "precis/shards.h"
#include "precis/status.h"

namespace precis {

class ShardGroups {
 public:
  using Shards = std::vector<std::uint32_t>;
  using Work = std::function<Status(const Shards&)>;

  // `disk`: the name of the node's local store, which never changes.
  ShardGroups(Runtime& runtime, const std::string& disk);

  // Any thread. A client asks for the shard, which is not served now.
  void note_asked(std::uint32_t shard);
  // [blocking] One caller at a time. Calls `work` for the shards of each group, until all had their
  // turn or `may_go_on` is false or the shared storage is unavailable. Returns the first error.
  Status run(const Shards& shards, const Work& work, const std::function<bool()>& may_go_on);

 private:
  std::deque<Shards>::iterator next_of(std::deque<Shards>& groups) const;

  const Clock& clock_;
  const std::size_t first_;  // the group at which this node begins
  std::array<std::atomic<std::uint64_t>, kShards> asked_ns_{};  // when it was last asked for
  const std::unique_ptr<Executor> workers_;
};

}  // namespace precis
