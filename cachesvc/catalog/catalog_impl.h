// The catalog: its parts in memory (segment tree with prefix index, sessions, budgets, models) and
// the store beneath. Private to this folder; users include catalog.h.
//
// Two locks. `changes_` is held through a whole change, the store's write included, so changes come
// one after the other and what a change has checked stays true until it is applied. Commits at
// kFsync that wait for it together are one change then (commit_queue.h). `state_` guards the parts
// in memory: shared by readers, exclusive for the short moment in which a change that the store has
// acknowledged is applied. Who holds `changes_` may read without `state_`: nobody else may write.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/catalog/change.h"
#include "cachesvc/catalog/commit_queue.h"
#include "cachesvc/catalog/segment_tree.h"
#include "cachesvc/catalog/sessions.h"

namespace precis {

class CatalogImpl final : public Catalog {
 public:
  CatalogImpl(Store& store, const Clock& clock, std::uint64_t kept_bytes_max);
  ~CatalogImpl() override;
  Status load();

  // ---- catalog_models.cc
  Result<msg::ModelRow> register_model(std::string_view tenant, const ModelSpec& model) override;
  Result<ModelSpec> model(std::string_view tenant, const Digest& fingerprint) const override;
  Result<msg::Models> models_page(std::string_view tenant,
                                  const msg::ListModels& request) const override;
  Status add_projection(const StoredProjection& row, Bytes weights, Bytes grams) override;
  Result<Projection> projection(std::string_view tenant, const Digest& model,
                                std::uint32_t layer) const override;
  Status read_projection(const StoredProjection& row, ProjectionPart part,
                         MutableBytes into) override;

  // ---- catalog_profiles.cc
  Result<msg::ProfileRow> add_profile(std::string_view tenant, std::string_view json) override;
  std::vector<msg::ProfileRow> profiles(std::string_view tenant,
                                        std::optional<Digest> model) const override;
  Result<msg::ProfileRow> profile(std::string_view tenant, const Digest& model,
                                  std::string_view name) override;
  Status remove_profile(std::string_view tenant, const Digest& model,
                        std::string_view name) override;
  Result<FoundProfile> find_profile(std::string_view tenant, const Digest& model,
                                    const Recipe& recipe) const override;

  // ---- catalog.cc
  std::uint64_t dropped_segments() const override { return dropped_segments_; }
  Totals totals(std::string_view tenant) const override;
  Totals totals() const override;

  // ---- catalog_commits.cc
  std::shared_ptr<StagedValue> stage(SharedBytes records) override;
  Status commit(const SegmentRow& row, std::span<const Layer> layers,
                Durability durability) override;
  Result<bool> trim(const SegmentRow& from, const SegmentRow& to, std::span<const Layer> layers,
                    Durability durability) override;
  Status harden(std::string_view tenant, const SegmentId& id, Durability durability) override;
  // That wait for the change under way, for tests.
  std::size_t commits_waiting() const { return commits_waiting_.waiting(); }

  // ---- catalog_segments.cc
  std::vector<Link> match(std::string_view tenant, const TokenPath& path,
                          std::uint32_t faithful_ppm) const override;
  std::vector<Row> parents(std::string_view tenant, const TokenPath& path,
                           std::uint32_t faithful_ppm) const override;
  Result<Row> segment(std::string_view tenant, const SegmentId& id) const override;
  Result<AnySegment> stored_segment(std::string_view tenant, const SegmentId& id) const override;
  Result<std::vector<Row>> chain(std::string_view tenant, const SegmentId& id) const override;
  Status peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) override;
  Status read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) override;
  Result<msg::Removed> remove(std::string_view tenant, const SegmentId& id, bool recursive,
                              std::vector<SegmentId>* gone) override;
  Result<msg::SegmentInfo> info(std::string_view tenant, const SegmentId& id,
                                bool with_plan) const override;
  std::uint32_t lease(std::string_view tenant, std::span<const Link>, std::uint32_t ms) override;
  SegmentLeases& leases() override { return leases_; }
  // ---- catalog_lists.cc
  Result<msg::Segments> segments_page(std::string_view tenant,
                                      const msg::ListPrefixes& request) const override;
  Result<msg::SegmentInfo> find_segment(std::string_view tenant,
                                        std::string_view id_beginning) const override;
  void count_hit(const SegmentId& id) override;
  bool quarantine(const SegmentRow& row) override;

  // ---- catalog_sessions.cc
  Result<msg::SessionRow> open_session(std::string_view tenant, const msg::OpenSession&) override;
  Result<msg::SessionRow> advance_session(std::string_view tenant,
                                          const msg::AdvanceSession&) override;
  Result<msg::SessionRow> pin_session(std::string_view tenant, const msg::PinSession&) override;
  Result<msg::SessionRow> fork_session(std::string_view tenant, const msg::ForkSession&) override;
  Status remove_session(std::string_view tenant, std::string_view name) override;
  Result<msg::SessionRow> session(std::string_view tenant, std::string_view name) const override;
  Result<msg::Sessions> sessions_page(std::string_view tenant,
                                      const msg::ListSessions& request) const override;
  msg::Budgets budgets(std::string_view tenant, const msg::BudgetScope& scope,
                       const BudgetDefaults& configured) const override;
  Status set_budget(std::string_view tenant, const msg::SetBudget&) override;

 private:
  struct KnownProfile {
    std::shared_ptr<const Profile> profile;
    Digest digest;
    std::uint64_t added_unix_ms = 0;
  };
  struct Model {
    ModelSpec spec;
    std::uint64_t segments = 0;
    std::map<std::uint32_t, Projection> projections;            // by layer
    std::map<std::string, KnownProfile, std::less<>> profiles;  // by name
  };
  using ModelKey = std::pair<std::string, Digest>;  // tenant, fingerprint
  using Models = std::map<ModelKey, Model>;

  // Load, one table each; see load().
  Status load_models();
  Status load_projections();
  Status load_profiles();
  Status load_segments();
  Status load_sessions();
  Status load_budgets();
  Status load_marks();
  Status check_format();
  template <typename Stored>
  Status load_rows(Table table, Result<Stored> (*decode)(Bytes),
                   std::string (*key_of)(const Stored&), const std::function<void(Stored)>& take);

  // With changes_ held. Writes the change, with what has been waiting for one (riders).
  Status write(Change change, Durability durability);
  void add_hits(Change& change, std::vector<SegmentId>& saved);
  void save_hits_later(const SegmentNode& node, const SegmentId& id);
  void save_all_hits();
  Status save_session(std::string_view tenant, const msg::SessionRow& row);
  void forget_dropped();  // segments that gave way in the store, and what stands on them
  void erase_dropped(const std::set<SegmentId>& gone);

  // With changes_ or state_ held.
  const ModelSpec* find_model(std::string_view tenant, const Digest& fingerprint) const;
  Result<const Model*> known_model(std::string_view tenant, const Digest& fingerprint) const;
  // The tenant's, in the order of their fingerprints.
  std::pair<Models::const_iterator, Models::const_iterator> models_of(
      std::string_view tenant) const;
  // With changes_ held. Refuses a recipe that needs a profile for all models, or for one without.
  Status check_has_profile(std::string_view tenant, const msg::SetBudget& request) const;
  static msg::ProfileRow describe(const KnownProfile& known);
  Status check_profile_room(std::string_view tenant, const Profile& profile) const;
  Result<std::optional<msg::ProfileRow>> profile_with_text(std::string_view tenant,
                                                           const Digest& model,
                                                           std::string_view name);
  // As find_profile().
  static Result<FoundProfile> fitting_profile(const Model& holder, const Digest& model,
                                              const Recipe& recipe);
  Result<const SegmentNode*> find_segment(std::string_view tenant, const SegmentId& id) const;
  Result<const msg::SessionRow*> find_session(std::string_view tenant, std::string_view name) const;
  msg::SegmentInfo describe(const SegmentNode& node, bool with_plan) const;
  static msg::ModelRow describe(const Digest& fingerprint, const Model& model);
  static std::vector<Row> chain_of(const SegmentNode* tip);
  // Whether a crash could take the segment away, because it was committed at kMemory.
  bool is_volatile(const SegmentNode& node) const;
  bool chain_is_volatile(const SegmentNode* tip) const;
  // Whether a quarantine mark stands, or is to stand, in the store.
  bool is_marked(const SegmentId& id) const;

  // With changes_ held.
  Status harden();
  Status check_session_room(std::string_view tenant) const;
  Status harden_again(const SegmentNode& present, Durability durability);
  Result<const SegmentNode*> find_parent(const SegmentRow& row) const;
  // What commit() and trim() say of one. Raises its durability to that of what it takes the place
  // of, and its parents' to its own.
  Status check_commit(Commit& commit, std::uint64_t promised_bytes = 0);  // of memory, to others
  // Commits that have been checked, none of which stands on another or is of the same segment, each
  // in the place of what stands under its id, if anything does. All or none.
  Status store_segments(std::span<Commit* const> commits);
  void store_each(std::span<Commit* const> commits);  // each as it says what came of it
  void commit_all(std::span<Commit* const> commits);
  Durability at_least_as(const SegmentNode* present, Durability asked) const;
  std::vector<SegmentId> last_of(std::vector<SegmentId>& left) const;
  Status remove_some(std::string_view tenant, const std::vector<SegmentId>& some,
                     msg::Removed& removed);
  Status check_unpinned(std::string_view tenant, const SegmentId& id,
                        const std::vector<SegmentId>& all) const;

  Store& store_;
  const Clock& clock_;
  const std::uint64_t kept_bytes_max_;  // of memory, for segments

  SegmentLeases leases_;         // its lock comes after the others
  CommitQueue commits_waiting_;  // before changes_
  std::mutex changes_;
  // Written under changes_ alone.
  std::uint64_t commits_ = 0;          // of this process
  std::uint64_t hardened_ = 0;         // commits up to this one survive a crash
  std::set<SegmentId> marks_;          // quarantine marks in the store
  std::set<SegmentId> marks_to_save_;  // those the store refused
  std::atomic<std::uint64_t> dropped_segments_ = 0;

  mutable std::shared_mutex state_;
  // Written under both locks.
  SegmentTree tree_;
  Sessions sessions_;
  BudgetTable budgets_;
  Models models_;
  std::set<std::pair<Table, std::string>> bad_rows_;  // rows that failed their check

  mutable std::mutex hits_mutex_;
  std::deque<SegmentId> unsaved_hits_;  // guarded by hits_mutex_
};

}  // namespace precis
