// What is stored, in memory and in the store: models, segments and their paths, sessions, budgets.
// Opened from the store's small rows; payload is never scanned.
//
// Thread-safe. Methods marked [blocking] wait for the store and belong on the storage executor; the
// others answer from memory. Every name is looked up within one tenant; a foreign tenant's object
// is kNotFound, as if it were not there.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/catalog/budgets.h"
#include "cachesvc/catalog/segment_leases.h"
#include "cachesvc/store/store.h"
#include "precis/block_digest.h"
#include "precis/catalog_row.h"
#include "precis/messages.h"
#include "precis/profile.h"

namespace precis {

class Catalog {
 public:
  // Reads every small row. Rows that fail their check are quarantined: counted, left on disk, not
  // served. kVersionMismatch if the store was written by a newer format. `kept_bytes_max`: of
  // memory for all segments; commits past it are kOutOfSpace, what is stored is opened all the
  // same.
  static Result<std::unique_ptr<Catalog>> open(
      Store& store, const Clock& clock,
      std::uint64_t kept_bytes_max = std::numeric_limits<std::uint64_t>::max());
  virtual ~Catalog() = default;

  // ---- models
  // [blocking] Registering an equal spec again is fine.
  virtual Result<msg::ModelRow> register_model(std::string_view tenant, const ModelSpec& model) = 0;
  virtual Result<ModelSpec> model(std::string_view tenant, const Digest& fingerprint) const = 0;
  // A page of all, by fingerprint. kInvalidArgument: no page ended at `after`, as below.
  virtual Result<msg::Models> models_page(std::string_view tenant,
                                          const msg::ListModels&) const = 0;

  // ---- output projections, one per layer of a model, for good
  using Projection = std::shared_ptr<const StoredProjection>;
  enum class ProjectionPart { kWeights, kGrams };
  // [blocking] Stores a layer's weights and their Gram matrices. The same weights again are OK, and
  // take the place of damaged bytes; others are kInvalidArgument. kNotFound: the model.
  virtual Status add_projection(const StoredProjection& row, Bytes weights, Bytes grams) = 0;
  // kNotFound if the layer has none.
  virtual Result<Projection> projection(std::string_view tenant, const Digest& model,
                                        std::uint32_t layer) const = 0;
  // [blocking] Into `into` of the part's size; kCorruption if its bytes are not what was stored.
  virtual Status read_projection(const StoredProjection& row, ProjectionPart part,
                                 MutableBytes into) = 0;

  // ---- profiles, by model and name
  // [blocking] In the place of one of the same name. kInvalidArgument, kVersionMismatch: the JSON;
  // kNotFound: its model is not registered; kRejected: the tenant has too many.
  virtual Result<msg::ProfileRow> add_profile(std::string_view tenant, std::string_view json) = 0;
  virtual std::vector<msg::ProfileRow> profiles(std::string_view tenant,
                                                std::optional<Digest> model) const = 0;
  // [blocking] With its JSON, as it was added.
  virtual Result<msg::ProfileRow> profile(std::string_view tenant, const Digest& model,
                                          std::string_view name) = 0;
  // [blocking]
  virtual Status remove_profile(std::string_view tenant, const Digest& model,
                                std::string_view name) = 0;
  // The one that `recipe` names, by name or digest; where it names none, of those that were built
  // for the model over its scores the one added last. kInvalidArgument if the named one is for
  // something else.
  struct FoundProfile {
    std::shared_ptr<const Profile> profile;  // shared: readers outlive a removal
    Digest digest;
  };
  virtual Result<FoundProfile> find_profile(std::string_view tenant, const Digest& model,
                                            const Recipe& recipe) const = 0;

  // ---- segments
  using Row = std::shared_ptr<const SegmentRow>;  // shared: readers outlive a removal
  struct Link {
    Row row;
    std::uint32_t matched_end = 0;
  };
  // The chain of segments that covers the longest prefix of the path, from the root on. Every link
  // but the last is whole; the last may be partial at a block boundary. Of chains equally long the
  // one that is faithful further (faithful.h) wins, then the one with more entries kept among the
  // matched tokens (a partial link's pro rata), then the newer. Chains that are not faithful up to
  // `faithful_ppm` are passed over. Work: a logarithmic number of look-ups. Of segments that end
  // within one block, and are not those, it passes over 64 at most: then the match ends before it.
  virtual std::vector<Link> match(std::string_view tenant, const TokenPath& path,
                                  std::uint32_t faithful_ppm) const = 0;
  // The longest chain of whole segments that ends before the path does, and is faithful so far:
  // where a put continues. Work: a look-up for each block behind it.
  virtual std::vector<Row> parents(std::string_view tenant, const TokenPath& path,
                                   std::uint32_t faithful_ppm) const = 0;
  // kCorruption if it is out of service: quarantined, or standing on what is.
  virtual Result<Row> segment(std::string_view tenant, const SegmentId& id) const = 0;
  struct AnySegment {
    Row row;
    bool quarantined = false;  // its own bytes failed a check
  };
  // In service or not, for those who look for damage.
  virtual Result<AnySegment> stored_segment(std::string_view tenant, const SegmentId& id) const = 0;
  // The segment and those it stands on, from the root on.
  virtual Result<std::vector<Row>> chain(std::string_view tenant, const SegmentId& id) const = 0;
  // A layer's records; where the put staged them the store has begun to write them.
  struct Layer {
    Bytes records;
    std::shared_ptr<StagedValue> staged = nullptr;
  };
  virtual std::shared_ptr<StagedValue> stage(SharedBytes records) = 0;  // as Store::stage()
  // [blocking] Stores row and payload in one batch; visible when it returns OK, not before.
  // layers[l] is layer l. Committing an id that is there already is OK and changes
  // nothing, unless it is quarantined: then these bytes take the place of the bad ones. The
  // segments it stands on are at least as durable when it returns. kNotFound if the parent has gone
  // meanwhile, kInvalidArgument if the row does not fit its model, its parent or its payload,
  // kOutOfSpace if there is no room for it on the disk or in memory.
  // One that was trimmed gets back what it lost.
  // At kMemory nothing is promised: where more is committed so than may wait for the disk, the
  // oldest segments that wait are gone, with what stands on them, and sessions whose tip was one
  // have as tip what is left below it. dropped_segments() counts them. What was committed at kWal
  // or kFsync, or is stood on by what was, never goes so.
  virtual Status commit(const SegmentRow& row, std::span<const Layer> layers,
                        Durability durability) = 0;
  // [blocking] Puts `to`, fewer entries of the same put, in the place of `from`, row and payload in
  // one batch, at least as durable as `from` is. False, and nothing is changed, unless `from` is
  // what is stored.
  virtual Result<bool> trim(const SegmentRow& from, const SegmentRow& to,
                            std::span<const Layer> layers, Durability durability) = 0;
  // [blocking] Makes a stored segment, and those it stands on, at least as durable. kNotFound,
  // kCorruption as segment().
  virtual Status harden(std::string_view tenant, const SegmentId& id, Durability durability) = 0;
  // [blocking, but for no change] Layer `layer`'s records into `into` of row.layer_bytes[layer],
  // not yet checked by their own checksums. kNotFound where a removal may be under way:
  // read_layer() knows.
  virtual Status peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) = 0;
  // [blocking] The same. kNotFound if the segment was removed; on kCorruption the caller
  // quarantines it.
  virtual Status read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) = 0;
  // [blocking] kInvalidArgument naming what stands on it: children unless `recursive`, pinned
  // sessions in any case. Unpinned sessions whose tip goes lose it. Many go in several changes,
  // leaves first; an error after the first of them says how many went. `gone`, if given, gets the
  // removed ids, parents first.
  virtual Result<msg::Removed> remove(std::string_view tenant, const SegmentId& id, bool recursive,
                                      std::vector<SegmentId>* gone) = 0;
  // A page of all, the newest first; those out of service too, as they take space and can be
  // removed. Work: a bounded number of rows, however many are stored.
  virtual Result<msg::Segments> segments_page(std::string_view tenant,
                                              const msg::ListPrefixes&) const = 0;
  // The one whose id begins with these digits, without its plan. kNotFound where there is none,
  // kInvalidArgument naming some where there are several.
  virtual Result<msg::SegmentInfo> find_segment(std::string_view tenant,
                                                std::string_view id_beginning) const = 0;
  virtual Result<msg::SegmentInfo> info(std::string_view tenant, const SegmentId& id,
                                        bool with_plan) const = 0;
  // Promises that what was matched can be read for so long, whatever happens to it meanwhile. How
  // many ms were granted, at most limits::kLeaseMsMax; 0 where it is no longer what is stored, or a
  // bound is reached (segment_leases.h).
  virtual std::uint32_t lease(std::string_view tenant, std::span<const Link>, std::uint32_t ms) = 0;
  virtual SegmentLeases& leases() = 0;
  virtual void count_hit(const SegmentId& id) = 0;  // in memory; written with the next change
  // [blocking] Takes a segment out of service after its bytes failed a check, at once and for good:
  // it and what stands on it is no longer matched, also after a restart, until it is put again.
  // False if `row` is no longer what is stored: the bytes that failed were another's.
  virtual bool quarantine(const SegmentRow& row) = 0;

  // ---- sessions (expired ones are gone, pinned or not; opening and advancing renew the TTL)
  // [blocking] these five. A session is as durable as its tip, kWal at best.
  virtual Result<msg::SessionRow> open_session(std::string_view tenant,
                                               const msg::OpenSession&) = 0;
  // kInvalidArgument unless the new tip is the present one or stands on it.
  virtual Result<msg::SessionRow> advance_session(std::string_view tenant,
                                                  const msg::AdvanceSession&) = 0;
  virtual Result<msg::SessionRow> pin_session(std::string_view tenant, const msg::PinSession&) = 0;
  virtual Result<msg::SessionRow> fork_session(std::string_view tenant,
                                               const msg::ForkSession&) = 0;
  virtual Status remove_session(std::string_view tenant, std::string_view name) = 0;
  virtual Result<msg::SessionRow> session(std::string_view tenant, std::string_view name) const = 0;
  virtual Result<msg::Sessions> sessions_page(std::string_view tenant,
                                              const msg::ListSessions&) const = 0;  // by name

  // ---- budgets
  virtual msg::Budgets budgets(std::string_view tenant, const msg::BudgetScope& scope,
                               const BudgetDefaults& configured) const = 0;
  // [blocking] kInvalidArgument for a recipe that does not parse, one that needs a profile where it
  // is for all models, or a keep outside (0, 1]; kNotFound where the model has no such profile.
  virtual Status set_budget(std::string_view tenant, const msg::SetBudget&) = 0;

  struct Totals {
    std::uint64_t models = 0, segments = 0, sessions = 0;
    std::uint64_t stored_bytes = 0, original_bytes = 0;
    std::uint64_t quarantined_rows = 0;  // that failed their check when they were read
    std::uint64_t quarantined_segments =
        0;  // out of service, those that stand on bad ones included
  };
  // Work: the tenant's models, whatever else is stored.
  // Of one tenant; `quarantined_rows` is of all, as a row that cannot be read is nobody's.
  virtual Totals totals(std::string_view tenant) const = 0;
  virtual Totals totals() const = 0;
  // How many segments committed at kMemory gave way, since opening (commit()).
  virtual std::uint64_t dropped_segments() const = 0;
};

}  // namespace precis
