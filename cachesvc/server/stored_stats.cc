#include "cachesvc/server/stored_stats.h"

namespace precis {

void add_store_rows(msg::Stats& stats, const HotTierStats& hot, std::uint64_t dropped_segments,
                    const StoreStats& disk, const std::optional<RecoveryDoubt>& doubt,
                    const StoreHealth& health) {
  const auto add = [&](const char* name, std::uint64_t value, const char* help) {
    stats.rows.push_back({name, static_cast<double>(value), help});
  };
  add("precis_hot_bytes", hot.bytes, "Bytes of the RAM tier");
  add("precis_hot_layers", hot.entries, "Layers in the RAM tier");
  add("precis_hot_evictions_total", hot.evictions, "Layers evicted from the RAM tier");
  add("precis_dropped_segments_total", dropped_segments,
      "Segments committed at memory that were dropped before they were written");
  add("precis_doubtful_recovery", doubt ? 1 : 0,
      "1 while acknowledged changes are missing, or may be, and no operator has accepted the loss");
  add("precis_lost_changes", doubt ? doubt->lost_changes : 0,
      "Acknowledged changes that are missing since a doubtful recovery");
  add("precis_unclaimed_bytes", disk.unclaimed_bytes, "Bytes in payload files that no row names");
  add("precis_kept_log_bytes", disk.kept_log_bytes, "Bytes of logs kept since a doubtful recovery");
  add("precis_disk_bytes", disk.disk_bytes, "Bytes of the store's files");
  add("precis_payload_bytes", disk.payload_bytes, "Live payload bytes in the store");
  add("precis_disk_free_bytes", health.free_bytes, "Bytes free on the store's disk");
  add("precis_disk_min_free_bytes", health.min_free_bytes,
      "Bytes free below which puts are refused");
  add("precis_disk_low", health.low ? 1 : 0,
      "1 while puts are refused because the disk has too little free space");
  add("precis_disk_fault", health.files.ok() ? 0 : 1, "1 while files of the store are missing");
}

void add_totals(msg::Stats& stats, const Catalog::Totals& totals) {
  const auto add = [&](const char* name, std::uint64_t value, const char* help) {
    stats.rows.push_back({name, static_cast<double>(value), help});
  };
  add("precis_models", totals.models, "Models registered (of this tenant)");
  add("precis_segments", totals.segments, "Segments stored (of this tenant)");
  add("precis_sessions", totals.sessions, "Sessions alive (of this tenant)");
  add("precis_stored_bytes", totals.stored_bytes, "Record bytes of all segments (of this tenant)");
  add("precis_pinned_bytes", totals.pinned_bytes,
      "Record bytes that pinned sessions need (of this tenant)");
  add("precis_original_bytes", totals.original_bytes,
      "K and V bytes of all segments before compression (of this tenant)");
  add("precis_quarantined_segments", totals.quarantined_segments,
      "Segments out of service: damaged, or with a damaged ancestor (of this tenant)");
}

void fill_status(msg::ServerStatus& status, const Catalog::Totals& totals, const StoreHealth& disk,
                 const KnownLoss& loss, bool named) {
  status.models = totals.models;
  status.segments = totals.segments;
  status.segments_out_of_service = totals.quarantined_segments;
  status.sessions = totals.sessions;
  status.stored_bytes = totals.stored_bytes;
  status.pinned_bytes = totals.pinned_bytes;
  status.disk_free_bytes = disk.free_bytes;
  status.disk_min_free_bytes = disk.min_free_bytes;
  status.disk_low = disk.low;
  status.doubtful_recovery = loss.doubt.has_value();
  if (loss.doubt) {
    status.lost_changes = loss.doubt->lost_changes;
    status.kept_bytes = loss.kept_bytes;
    status.kept_log_bytes = loss.kept_log_bytes;
  }
  if (disk.files.ok()) return;
  status.disk_fault = named ? disk.files.message() : "files of the store are missing";
}

KnownLoss warn_of_loss(Log& log, Store& store) {
  const StoreStats stats = store.stats();
  if (stats.missing_bytes > 0) {
    log.warn(
        "payload files are missing or too short; precisctl fsck finds the segments that were in "
        "them",
        {{"missing_bytes", stats.missing_bytes}});
  }
  const auto doubt = store.doubt();
  if (doubt) {
    log.warn(
        "acknowledged changes are missing, or may be: the service serves the rest, and deletes no "
        "payload until the loss is accepted (precisctl fsck says how)",
        {{"lost_changes", doubt->lost_changes},
         {"record_lost", doubt->record_lost},
         {"kept_payload_bytes", stats.unclaimed_bytes},
         {"logs", doubt->logs}});
  }
  return {doubt, stats.unclaimed_bytes, stats.kept_log_bytes};
}

}  // namespace precis
