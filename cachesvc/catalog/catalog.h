// The stored models, segments with their paths, sessions and budgets, in memory and in the store.
// Opening reads the store's small rows and never scans payload.
//
// Thread-safe. Methods marked [blocking] wait for the store and belong on the storage executor; the
// others answer from memory. Every name is looked up within one tenant. Another tenant's object is
// kNotFound, as if it did not exist.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/catalog/budget_catalog.h"
#include "cachesvc/catalog/event_source.h"
#include "cachesvc/catalog/model_catalog.h"
#include "cachesvc/catalog/segment_leases.h"
#include "cachesvc/catalog/settings_catalog.h"
#include "cachesvc/catalog/shard_catalog.h"
#include "cachesvc/catalog/stored_use.h"
#include "cachesvc/store/store.h"
#include "precis/block_digest.h"
#include "precis/catalog_row.h"
#include "precis/messages.h"

namespace precis {

class Catalog : public ModelCatalog,
                public BudgetCatalog,
                public SettingsCatalog,
                public EventSource,
                public ShardCatalog {
 public:
  // Reads every small row. A row that fails its check is quarantined: counted, left on disk, not
  // served. kVersionMismatch if a newer format wrote the store. `kept_bytes_max` limits the memory
  // for all segments: commits past it are kOutOfSpace, but opening still loads all stored segments.
  // `in_shards`: the store shares rows with other nodes; load_shard() loads them.
  static Result<std::unique_ptr<Catalog>> open(
      Store& store, const Clock& clock,
      std::uint64_t kept_bytes_max = std::numeric_limits<std::uint64_t>::max(),
      bool in_shards = false);
  // ---- segments
  using Row = std::shared_ptr<const SegmentRow>;  // shared: readers outlive a removal
  struct Link {
    Row row;
    std::uint32_t matched_end = 0;
  };
  // Returns the chain of segments that covers the longest prefix of the path, from the root on.
  // Every link except the last is whole; the last may be partial, up to a block boundary. Among
  // equally long chains it prefers the most faithful (faithful.h), then the chain with the most
  // entries kept among the matched tokens (pro rata for a partial link), then the newest. Chains
  // that are not faithful up to `faithful_ppm` are skipped. Work: a logarithmic number of look-ups.
  // The search tries at most 64 segment tails within the last block; if none fits, the match ends
  // at that block's start.
  virtual std::vector<Link> match(std::string_view tenant, const TokenPath& path,
                                  std::uint32_t faithful_ppm) const = 0;
  // Returns the longest chain of whole segments that ends before the path does and is faithful up
  // to `faithful_ppm`. A put continues there. Work: one look-up for each block after its end.
  virtual std::vector<Row> parents(std::string_view tenant, const TokenPath& path,
                                   std::uint32_t faithful_ppm) const = 0;
  // kCorruption if it is out of service: the segment or an ancestor is quarantined.
  virtual Result<Row> segment(std::string_view tenant, const SegmentId& id) const = 0;
  // As segment(), but also finds guests: segments of another node's shards (shard_catalog.h).
  virtual Result<Row> served_segment(std::string_view tenant, const SegmentId& id) const = 0;
  // Returns the row that a get in progress reads in place of `row`, which is `row` for a guest.
  virtual Result<Row> served_now(const Row& row) const = 0;
  struct AnySegment {
    Row row;
    bool quarantined = false;  // its own bytes failed a check
  };
  // Returns also a segment that is out of service, so that its stored bytes can be checked.
  virtual Result<AnySegment> stored_segment(std::string_view tenant, const SegmentId& id) const = 0;
  // Returns the segment and its ancestors, from the root on.
  virtual Result<std::vector<Row>> chain(std::string_view tenant, const SegmentId& id) const = 0;
  // A layer's records. `staged` is set if the put staged them: the store already writes them then.
  struct Layer {
    Bytes records;
    std::shared_ptr<StagedValue> staged = nullptr;
  };
  virtual std::shared_ptr<StagedValue> stage(SharedBytes records) = 0;  // as Store::stage()
  // [blocking] Stores row and payload in one batch. The segment is visible when it returns OK, and
  // not before. layers[l] is layer l. Committing a stored id again is OK and changes nothing,
  // except that the new bytes replace quarantined ones and restore what a trim removed. The
  // segment's ancestors are at least as durable when it returns. kNotFound if the parent has been
  // removed meanwhile; kInvalidArgument if the row does not fit its model, its parent or its
  // payload; kOutOfSpace if the disk or memory has no room for it. kMemory promises nothing. If too
  // many commits at kMemory wait for the disk, the oldest waiting segments are dropped with their
  // descendants, and a session with a dropped tip moves to the nearest ancestor that is left.
  // dropped_segments() counts them. A segment committed at kWal or kFsync, and its ancestors, are
  // never dropped.
  virtual Status commit(const SegmentRow& row, std::span<const Layer> layers,
                        Durability durability) = 0;
  // [blocking] Replaces `from` with `to`, which has fewer entries of the same put. Writes row and
  // payload in one batch, at least as durable as `from`. Returns false and changes nothing if
  // `from` is not the stored row.
  virtual Result<bool> trim(const SegmentRow& from, const SegmentRow& to,
                            std::span<const Layer> layers, Durability durability) = 0;
  // [blocking] Replaces `from` with two segments, in one batch at kWal or better: `head`, and
  // `tail` with head as its parent and from's id, tip and children. A head that is stored already
  // stays as it is. Returns false and changes nothing if `from` is not the stored row.
  // kInvalidArgument if a chain gets too long; kConflict if the head's id is another segment's.
  struct Part {
    SegmentRow row;
    std::span<const Layer> layers;
  };
  virtual Result<bool> split(const SegmentRow& from, const Part& head, const Part& tail) = 0;
  // Both are [blocking]. mergeable() returns the longest run of segments that ends at the parent of
  // `tip` and may become one (catalog_merges.h), from the root on; none if it has fewer than two.
  // merge() replaces a run by `into`, which has the last one's id, tip and children, in one batch
  // at kWal or better. The others' ids then name it too. False, and nothing changes, if the run
  // changed meanwhile.
  virtual std::vector<Row> mergeable(std::string_view tenant, const SegmentId& tip) = 0;
  virtual Result<bool> merge(std::span<const Row> run, const Part& into) = 0;
  // [blocking] Makes a stored segment and its ancestors at least as durable. Errors as segment().
  virtual Status harden(std::string_view tenant, const SegmentId& id, Durability durability) = 0;
  // [blocking, but does not wait for changes] Reads layer `layer`'s records into `into` of
  // row.layer_bytes[layer] bytes. Their own checksums are not checked yet. kNotFound also while a
  // removal is in progress: read_layer() tells the difference.
  // `was_here`, if given: false if the layer was read from the storage that nodes share.
  virtual Status peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into,
                            bool* was_here = nullptr) = 0;
  // [blocking] Keeps such a layer in the local store too, once its checksums have been checked.
  virtual void keep_layer(const SegmentRow& row, std::uint32_t layer, Bytes records) = 0;
  // [blocking] As peek_layer(). kNotFound if it was removed; the caller quarantines kCorruption.
  virtual Status read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) = 0;
  // [blocking] Removes a segment, with its descendants if `recursive`. kConflict names the children
  // (unless `recursive`) or the pinned session that prevent it. Unpinned sessions whose tip is
  // removed lose their tip. A large removal takes several changes, leaves first; an error
  // after the first says how many segments were removed. `gone` receives their ids, parents first.
  virtual Result<msg::Removed> remove(std::string_view tenant, const SegmentId& id, bool recursive,
                                      std::vector<SegmentId>* gone,
                                      msg::KvEvent::Cause cause = msg::KvEvent::Cause::kAsked) = 0;
  // Returns a page of the segments, newest first, also those out of service, which take space.
  // kInvalidArgument if `after` is not the end of a page. Work: a bounded number of rows.
  virtual Result<msg::Segments> segments_page(std::string_view tenant,
                                              const msg::ListPrefixes&) const = 0;
  // The segment whose id begins with these digits, without its plan. kNotFound if there is none. If
  // there are several, kInvalidArgument names some.
  virtual Result<msg::SegmentInfo> find_segment(std::string_view tenant,
                                                std::string_view id_beginning) const = 0;
  virtual Result<msg::SegmentInfo> info(std::string_view tenant, const SegmentId& id,
                                        bool with_plan) const = 0;
  // Keeps matched segments readable for `ms` milliseconds, even if they are removed, trimmed or
  // replaced meanwhile. Returns the granted time in ms, at most limits::kLeaseMsMax. Returns 0 if a
  // segment is no longer the stored one or a limit is reached (segment_leases.h).
  virtual std::uint32_t lease(std::string_view tenant, std::span<const Link>, std::uint32_t ms) = 0;
  virtual SegmentLeases& leases() = 0;
  // Both change memory, and are written with later changes. They ignore what is not stored.
  virtual void count_hit(const SegmentId& id) = 0;
  virtual void hint(std::string_view tenant, const SegmentId& id, const msg::Hints& hints) = 0;
  // [blocking] As hint(), and stored when it returns, unless the segment can be lost in a crash.
  // Errors as segment().
  virtual Result<msg::SegmentInfo> set_retention(std::string_view tenant,
                                                 const msg::SetRetention& change) = 0;
  // Segments of a tenant, or of all for "", parents before children. Work: a step per segment.
  virtual std::vector<StoredUse> stored_uses(std::string_view tenant) const = 0;
  // [blocking] Takes a segment and its descendants out of service at once, because the segment's
  // bytes failed a check. Lookups do not find them, also after a restart, until the segment is put
  // again. Returns false if `row` is no longer the stored one.
  virtual bool quarantine(const SegmentRow& row) = 0;

  // ---- sessions (an expired one does not exist, pinned or not; opening and advancing renew it).
  // The next six functions are [blocking]. A session is as durable as its tip, at most kWal.
  virtual Result<msg::SessionRow> open_session(std::string_view tenant, const msg::OpenSession&,
                                               std::optional<std::uint32_t> shard = {}) = 0;
  virtual Status renew_session(std::string_view tenant, std::string_view name) = 0;  // if due
  // kInvalidArgument unless the new tip is the current one or its descendant. Pinning a session,
  // advancing a pinned one and restoring its entries: kOutOfSpace past set_pinned_limits().
  virtual Result<msg::SessionRow> advance_session(std::string_view tenant,
                                                  const msg::AdvanceSession&) = 0;
  virtual Result<msg::SessionRow> pin_session(std::string_view tenant, const msg::PinSession&) = 0;
  virtual Result<msg::SessionRow> fork_session(std::string_view tenant,
                                               const msg::ForkSession&) = 0;
  virtual Status remove_session(std::string_view tenant, std::string_view name) = 0;
  virtual Result<msg::SessionRow> session(std::string_view tenant, std::string_view name) const = 0;
  virtual Result<SessionTurns> session_turns(std::string_view tenant,
                                             std::string_view name) const = 0;
  virtual Result<msg::Sessions> sessions_page(std::string_view tenant,
                                              const msg::ListSessions&) const = 0;  // by name

  // In stored bytes; 0 or absent: no limit. Sessions that are pinned already stay pinned.
  struct PinnedLimits {
    std::uint64_t of_all = 0;
    std::map<std::string, std::uint64_t, std::less<>> of_tenant;
  };
  virtual void set_pinned_limits(PinnedLimits limits) = 0;

  // ---- tenants that are stored (cachesvc/server/tenants_in_force.h)
  virtual std::vector<StoredTenant> stored_tenants() const = 0;  // by name
  // [blocking] Stores what `change` makes of a tenant's row; nullopt means no row. `change` may
  // read the catalog, and no other change runs meanwhile; it may be called several times. An error
  // of it changes nothing. The change survives a power loss. kOutOfSpace past
  // limits::kStoredTenantsMax.
  using TenantChange = std::function<Status(std::optional<StoredTenant>&)>;
  virtual Status change_tenant(const std::string& name, const TenantChange& change) = 0;

  struct Totals {
    std::uint64_t models = 0, segments = 0, sessions = 0;
    std::uint64_t stored_bytes = 0, original_bytes = 0;
    std::uint64_t pinned_bytes = 0;      // stored bytes that pinned sessions need
    std::uint64_t quarantined_rows = 0;  // rows that failed their check when they were read
    // Segments out of service, including descendants of bad segments.
    std::uint64_t quarantined_segments = 0;
  };
  // For one tenant, except `quarantined_rows`: an unreadable row belongs to no tenant. Work: a step
  // for each of its models.
  virtual Totals totals(std::string_view tenant) const = 0;
  virtual Totals totals() const = 0;
  // The number of segments committed at kMemory that were dropped since opening (commit()).
  virtual std::uint64_t dropped_segments() const = 0;
};

}  // namespace precis
