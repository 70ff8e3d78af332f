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

// The loss that a store found as it was opened; it stays so until it is opened again.
struct KnownLoss {
  std::optional<RecoveryDoubt> doubt;
  std::uint64_t kept_bytes = 0;      // of payload that no row means, kept for what is missing
  std::uint64_t kept_log_bytes = 0;  // of logs from before
};

// Appends the rows of the RAM tier, the catalog, the store and its disk.
void add_stored(msg::Stats& stats, const HotTierStats& hot, const Catalog::Totals& totals,
                std::uint64_t dropped_segments, const StoreStats& disk,
                const std::optional<RecoveryDoubt>& doubt, const StoreHealth& health);

// Fills in what the catalog, the disk and the recovery say. `named`: the store's files may be
// named, as their directory is.
void add_stored(msg::ServerStatus& status, const Catalog::Totals& totals, const StoreHealth& disk,
                const KnownLoss& loss, bool named);

// Logs what the store misses as it is opened, if anything. [blocking]
KnownLoss warn_of_loss(Log& log, Store& store);

}  // namespace precis
