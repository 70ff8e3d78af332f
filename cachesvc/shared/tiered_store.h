// A local store in front of the storage that the nodes of a cluster share: each change is made in
// the local store, and the part that other nodes need is copied later (uploads.h). Sessions of
// shards are in the shared storage only, so that no node finds an old one on its disk.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/shared/uploads.h"
#include "cachesvc/store/store.h"

namespace precis {

// The key in the shared storage of a row of this table, and the reverse; none if it is no such key.
std::string shared_key(Table table, std::string_view key);
std::optional<std::pair<Table, std::string>> from_shared_key(std::string_view key);

// `tier` and `uploads` outlive the store.
std::unique_ptr<Store> make_tiered_store(std::unique_ptr<Store> local, SharedTier& tier,
                                         Uploads& uploads);

}  // namespace precis
