// Rows of the statistics about the store, and warnings as a store is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cachesvc/base/log.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/store/store.h"
#include "precis/messages.h"

namespace precis {

// Appends the rows of the RAM tier, the catalog, the store and its disk.
void add_stored(msg::Stats& stats, const HotTierStats& hot, const Catalog::Totals& totals,
                std::uint64_t dropped_segments, const StoreStats& disk,
                const std::optional<RecoveryDoubt>& doubt, const StoreHealth& health);

// Fills in what the catalog and the disk say. `named`: the store's files may be named, as their
// directory is.
void add_stored(msg::ServerStatus& status, const Catalog::Totals& totals, const StoreHealth& disk,
                bool named);

// Logs what the store misses as it is opened, if anything. [blocking]
void warn_of_loss(Log& log, Store& store);

}  // namespace precis
