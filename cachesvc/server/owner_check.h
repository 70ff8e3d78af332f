// In a cluster, each node serves the paths and sessions of the shards that it owns.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

// kMoved if the request is about a path or a session that another node serves; a session can be
// removed anywhere, so that no former owner keeps it. kInvalidArgument for a fork of a session to a
// name that another shard has.
Status check_owner(const Caller& caller, const msg::RequestBody& request);

}  // namespace precis
