// Statistics of the store, and warnings when a store is opened.
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

// The loss that was found when the store was opened. It stays until the store is opened again.
struct KnownLoss {
  std::optional<RecoveryDoubt> doubt;
  std::uint64_t kept_bytes = 0;      // payload that is kept for the missing changes
  std::uint64_t kept_log_bytes = 0;  // earlier logs that are kept
};

// Appends the rows of the hot tier, the store and its disk, for all tenants together.
void add_store_rows(msg::Stats& stats, const HotTierStats& hot, std::uint64_t dropped_segments,
                    const StoreStats& disk, const std::optional<RecoveryDoubt>& doubt,
                    const StoreHealth& health);

// Appends the rows of a tenant's catalog.
void add_totals(msg::Stats& stats, const Catalog::Totals& totals);

// Fills in the state of the catalog, the disk and the recovery. `named`: messages may name the
// store's files, because the status also names their directory.
void fill_status(msg::ServerStatus& status, const Catalog::Totals& totals, const StoreHealth& disk,
                 const KnownLoss& loss, bool named);

// [blocking] Logs what the opened store misses, if anything.
KnownLoss warn_of_loss(Log& log, Store& store);

}  // namespace precis
