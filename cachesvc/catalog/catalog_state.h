// The state of the catalog: its parts in memory (segment tree with prefix index, sessions, budgets,
// models), the store below, and the locks. Private to this folder; users include catalog.h.
//
// Two locks. A change holds `changes_` throughout, its store write included, so changes run one
// after another and a checked condition stays true. Commits at kFsync that wait for `changes_`
// together become one change (commit_queue.h). Readers of the parts in memory share `state_`; a
// change holds it exclusively only to apply what the store has acknowledged. A holder of `changes_`
// may read without `state_`: no other thread may write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/catalog/change.h"
#include "cachesvc/catalog/guest_segments.h"
#include "cachesvc/catalog/segment_tree.h"
#include "cachesvc/catalog/sessions.h"

namespace precis {

// The parts of the catalog (catalog_impl.h) share one object of this class as their virtual base.
class CatalogState : public Catalog {
 protected:
  struct KnownProfile {
    std::shared_ptr<const Profile> profile;
    Digest digest;
    std::uint64_t added_unix_ms = 0;
    std::size_t bytes = 0;  // of its row
  };
  struct Model {
    ModelSpec spec;
    std::map<std::uint32_t, Projection> projections;            // by layer
    std::map<std::string, KnownProfile, std::less<>> profiles;  // by name
  };
  using ModelKey = std::pair<std::string, Digest>;  // tenant, fingerprint
  using Models = std::map<ModelKey, Model>;

  CatalogState(Store& store, const Clock& clock, std::uint64_t kept_bytes_max, bool in_shards);
  void set_pinned_limits(PinnedLimits limits) override;

  // The most rows with pending hits that one change also writes, so that no change becomes slow.
  static constexpr std::size_t kHitRowsPerChange = 8;

  // Callers hold changes_. Writes the change, plus pending hits, expiries and quarantine marks.
  Status write(Change change, Durability durability);
  void save_use_later(const SegmentNode& node, const SegmentId& id);
  // The session has ended with this change, and its own budget ends too: with the change, or in a
  // cluster soon after it.
  void end_budget(Change& change, std::string_view tenant, const std::string& session);
  // Callers hold no lock. Makes all nodes take the rows that `plan` returns, which is called with
  // changes_ held, maybe several times. Without rows nothing is changed.
  virtual Status change_settings(const Plan& plan) = 0;
  // kOutOfSpace, with `what` before the reason, if pinned sessions may not hold that many more
  // stored bytes.
  Status check_pinned_room(std::string_view tenant, std::uint64_t more_bytes,
                           const std::string& what);
  bool in_shards() const { return !held_.empty(); }
  // Callers hold both locks, once that change is written.
  void budget_ended(std::string_view tenant, const std::string& session);
  // Callers hold both locks, at the end of a change. `cause`: of removals.
  virtual void tell(msg::KvEvent::Cause cause) = 0;

  // Callers hold changes_ or state_ for the functions below.
  const ModelSpec* find_model(std::string_view tenant, const Digest& fingerprint) const;
  Result<const Model*> known_model(std::string_view tenant, const Digest& fingerprint) const;
  // Returns the range of the tenant's models, ordered by fingerprint.
  std::pair<Models::const_iterator, Models::const_iterator> models_of(
      std::string_view tenant) const;
  // Returns also a segment that is out of service, or into which this one was consolidated.
  Result<const SegmentNode*> find_any(std::string_view tenant, const SegmentId& id) const;
  Result<const SegmentNode*> find_node(std::string_view tenant, const SegmentId& id) const;
  Result<const msg::SessionRow*> find_session(std::string_view tenant, std::string_view name) const;
  // The model of the session's tip, if it has one.
  std::optional<Digest> model_of(std::string_view tenant, std::string_view session) const;
  // Returns whether a crash can lose the segment, because it was committed at kMemory.
  bool is_volatile(const SegmentNode& node) const;
  bool chain_is_volatile(const SegmentNode* tip) const;
  // Returns whether the store has, or will have, a quarantine mark for the segment.
  bool is_marked(const SegmentId& id) const;

  Agree agree_;             // none: settings are this catalog's alone
  std::vector<bool> held_;  // by shard; empty: not in shards. Written with changes_ held
  // Segments in the local store whose shard is not held. Guarded by changes_.
  std::map<std::pair<std::uint32_t, SegmentId>, Row> kept_here_;

  GuestSegments guests_;  // of other nodes

  // keep_layer() keeps what the local store has room for.
  std::atomic<std::uint64_t> local_bytes_max_ = std::numeric_limits<std::uint64_t>::max();

  Store& store_;
  const Clock& clock_;
  const std::uint64_t kept_bytes_max_;  // memory for all segments (kept_bytes())

  // Taken before the local copies of projections' bytes change, so that no commit waits for them.
  std::mutex projection_bytes_;

  SegmentLeases leases_;  // its lock is taken after the others
  std::mutex changes_;
  // Written with changes_ held.
  std::uint64_t commits_ = 0;          // commits of this process
  std::uint64_t hardened_ = 0;         // commits up to this one survive a crash
  std::set<SegmentId> marks_;          // quarantine marks in the store
  std::set<SegmentId> marks_to_save_;  // marks that the store does not have yet
  // Ended sessions whose budgets all nodes still have: tenants and names.
  std::set<std::pair<std::string, std::string>> ended_budgets_;

  mutable std::shared_mutex state_;
  // Written with both locks held.
  SegmentTree tree_;
  Sessions sessions_;
  BudgetTable budgets_;
  Models models_;
  std::map<std::string, StoredTenant, std::less<>> tenants_;
  std::string cluster_id_;
  std::set<std::pair<Table, std::string>> bad_rows_;  // rows that failed their check

  mutable std::mutex hits_mutex_;
  std::deque<SegmentId> unsaved_hits_;  // guarded by hits_mutex_

 private:
  std::mutex pinned_limits_mutex_;
  PinnedLimits pinned_limits_;

  void add_hits(Change& change, std::vector<SegmentId>& saved);
  Status write_to_store(const StoreBatch& batch, Durability durability);
};

}  // namespace precis
