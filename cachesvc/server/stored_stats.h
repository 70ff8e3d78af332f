// What is told of what is stored: rows of the statistics, and warnings as a store is opened.
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

// Why changes fail until an operator acts; empty: nothing is wrong. `named`: the store's files may
// be named, as their directory is.
std::string fault_text(const StoreHealth& health, bool named);

// What a store misses since it was recovered; it stays so until it is opened again.
struct KnownLoss {
  std::optional<RecoveryDoubt> doubt;
  std::uint64_t kept_bytes = 0;  // of payload that no row means, kept for what is missing
};

// Logs what the store misses as it is opened, if anything. [blocking]
KnownLoss warn_of_loss(Log& log, Store& store);

}  // namespace precis
