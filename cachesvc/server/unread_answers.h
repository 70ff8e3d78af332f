// A bound on the answers of all connections that their clients have not read yet.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>

#include "cachesvc/server/peer.h"
#include "precis/status.h"

namespace precis {

// OK if an answer of `size_bytes` may be sent to a connection of `tenant`, so that no more than
// `bytes_max` wait to be read. Else it is the tenant with most of them that has to do without: its
// connection with most is shed and leaves `peers`, or, where it is this tenant's own large answer
// that is too much, that is kRejected.
Status may_send(const std::unordered_set<std::shared_ptr<Peer>>& peers, std::size_t bytes_max,
                const std::string& tenant, std::size_t size_bytes);

}  // namespace precis
