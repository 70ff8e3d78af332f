// Which shard of a cluster a request is about, and whether this node owns it now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cachesvc/server/caller.h"

namespace precis {

// The shard of a path or of a session; none outside of a cluster. kMoved if another node owns it,
// or if this one has not loaded it yet. Loop thread. A put counts for forks (fork_finder.h).
Result<std::optional<HeldShard>> owned_shard(const Caller& caller, const msg::BeginPut& put);
Result<std::optional<HeldShard>> owned_shard(const Caller& caller, const msg::Lookup& lookup);
Result<std::optional<HeldShard>> owned_session(const Caller& caller, const std::string& name);
// OK if this node still owns the shard. A request calls it at its end: what it did not find may be
// at another node by now.
Status still_owned(const Caller& caller, const std::optional<HeldShard>& shard);
// kMoved instead of kNotFound if this node does not own the shard any more.
template <typename T>
Result<T> found_or_moved(const Caller& caller, const std::optional<HeldShard>& shard,
                         Result<T> found) {
  if (found.status().code() == StatusCode::kNotFound) PRECIS_TRY(still_owned(caller, shard));
  return found;
}
// The session's shard if this node has it now; none if another node owns it, or if no storage is
// shared. kMoved if this node owns it and has not loaded it.
Result<std::optional<HeldShard>> loaded_session(const Caller& caller, const std::string& name);
// kInvalidArgument unless both names are in one shard.
Status check_fork(const Caller& caller, const msg::ForkSession& fork);

}  // namespace precis
