// All stored segments and their parent relation. It decides which segments are in service: those
// that fit their model and their parent, are not quarantined, and whose parent is in service.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cachesvc/catalog/prefix_index.h"
#include "cachesvc/catalog/segment_node.h"
#include "cachesvc/catalog/tenant_segments.h"
#include "precis/catalog_row.h"

namespace precis {

// kInvalidArgument naming the field unless the row is consistent and fits its model and its parent
// (null at the root), so that everything the catalog derives from it is valid.
Status check_segment_row(const SegmentRow& row, const ModelSpec& model, const SegmentRow* parent);

// The approximate memory that a stored segment takes permanently: its row, its entries in the tree
// and the index, and the store's record of its layers' locations.
std::uint64_t kept_bytes(const SegmentRow& row);

// Not thread-safe, except for the hit counters of its nodes. A node keeps its address until it is
// erased.
class SegmentTree {
 public:
  // Returns a tenant's registered model, or null.
  using FindModel = std::function<const ModelSpec*(std::string_view tenant, const Digest&)>;
  explicit SegmentTree(FindModel find_model) : find_model_(std::move(find_model)) {}

  // Adds a segment, or replaces the one with the same id. Then puts it and its descendants into
  // service if they are fit for it. If a segment in service is put again with the same tokens, as
  // by a trim, its descendants stay in service throughout.
  void put(std::shared_ptr<const SegmentRow> row, Durability durability, std::uint64_t commit);
  // Takes a segment and its descendants out of service.
  void quarantine(const SegmentId& id);
  // Removes a segment. Its descendants go out of service.
  void erase(const SegmentId& id);
  // Counts `by` more pinned sessions with this tip, which may be absent. The stored segments of its
  // chain are pinned.
  void pin(const SegmentId& tip, int by);
  // Puts the segments into service that waited for this model of the tenant. Looks at no others.
  void model_added(std::string_view tenant, const Digest& model);

  const SegmentNode* find(const SegmentId& id) const;
  // As find(), or else the segment into which the one with this id was consolidated.
  const SegmentNode* find_current(const SegmentId& id) const;
  // Ids of the children of `id`, which itself may be absent.
  const std::vector<SegmentId>& children(const SegmentId& id) const;
  // `id` and all its descendants, parents before children.
  std::vector<SegmentId> subtree(const SegmentId& id) const;

  // Null for a tenant without segments.
  const TenantSegments* of_tenant(std::string_view tenant) const;
  const PrefixIndex& index() const { return index_; }
  const std::unordered_map<SegmentId, SegmentNode>& nodes() const { return nodes_; }
  std::uint64_t in_service() const { return in_service_; }
  std::uint64_t stored_bytes() const { return stored_bytes_; }
  std::uint64_t original_bytes() const { return original_bytes_; }
  std::uint64_t kept_bytes() const { return kept_bytes_; }  // of all segments
  std::uint64_t pinned_bytes() const;                       // stored, of all tenants
  // The stored bytes of the tip's chain that are not pinned yet.
  std::uint64_t unpinned_bytes(const SegmentId& tip) const;

  // A segment whose stored row, as far as it is in service, is another one than before.
  struct Change {
    std::shared_ptr<const SegmentRow> before;  // null: it was not in service
    const SegmentNode* after = nullptr;        // null: it is not in service
  };
  void record_changes() { recording_ = true; }
  // The changes since the last call, in the order in which the segments first changed.
  std::vector<Change> take_changes();

 private:
  void add_pins(const SegmentId& id, int by);
  void refresh(const SegmentId& id);
  bool keeps_place(const SegmentNode& node, const SegmentRow& row) const;
  void replace(SegmentNode& node, std::shared_ptr<const SegmentRow> row, Durability durability,
               std::uint64_t commit);
  // Gives the node its row, and adds it to the totals.
  void take(SegmentNode& node, std::shared_ptr<const SegmentRow> row, Durability durability,
            std::uint64_t commit);
  void subtract(const SegmentNode& node);  // subtracts it from the totals
  void leave_parent(const SegmentRow& row);
  bool may_serve(const SegmentNode& node) const;
  void enter_service(SegmentNode& node);
  void leave_service(SegmentNode& node);
  static void follow_chain(SegmentNode& node, const ModelSpec& model);
  void note(const SegmentNode& node);  // before it enters or leaves service
  const SegmentNode* parent_in_service(const SegmentRow& row) const;

  const FindModel find_model_;
  std::unordered_map<SegmentId, SegmentNode> nodes_;
  std::unordered_map<SegmentId, std::vector<SegmentId>> children_;  // by parent
  std::map<std::string, TenantSegments, std::less<>> tenants_;
  std::unordered_map<SegmentId, SegmentId> former_;  // from a former id to the segment's id
  std::unordered_map<SegmentId, std::uint64_t> pinned_tips_;  // number of pinned sessions at each
  // Roots that were put without their model, by tenant and model: rows from disk, if the model's
  // row is damaged. Those that are erased meanwhile stay listed.
  std::map<std::pair<std::string, Digest>, std::vector<SegmentId>> waiting_;
  PrefixIndex index_;
  bool recording_ = false;
  std::vector<SegmentId> changed_;
  std::unordered_map<SegmentId, std::shared_ptr<const SegmentRow>> before_;  // of changed_
  std::uint64_t in_service_ = 0, stored_bytes_ = 0, original_bytes_ = 0, kept_bytes_ = 0;
};

}  // namespace precis
