// trim: read -> cut -> store, of one segment. A budget is a cut, so the stored result is bit for
// bit what a put at that budget would have stored; no stage of compression runs. The segment keeps
// its id, which names what was put; its row says what is left.
//
// A get in progress continues if its cut is still stored, and ends with kNotFound otherwise.
// Putting the segment again restores the removed entries. Loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/rewrite_parts.h"
#include "cachesvc/pipeline/score_curve.h"

namespace precis {

class TrimPath {
 public:
  explicit TrimPath(RewriteParts parts) : parts_(parts) {}

  // Needs memory for the trimmed segment and for one layer as it is stored. A budget above the
  // stored entries is kConflict, naming the limit. A budget of exactly the stored entries only
  // makes the segment as durable as asked. Each layer's kept mass is the share of the sum of its
  // stored scores, above the lowest one, that the trim leaves. Protected entries have no score.
  Task<Result<msg::Trimmed>> run(Owner owner, msg::TrimPrefix request);
  // Only tells what would be left if each head kept its first counts[layer * num_kv_heads + head]
  // entries, or all that it stores if these are fewer. kInvalidArgument for another number of
  // heads.
  Task<Result<msg::Trimmed>> would_keep(Owner owner, SegmentId segment,
                                        std::vector<std::uint32_t> counts);
  // The scores of the segment's entries, by which a trim can be chosen. Reads all of it.
  Task<Result<ScoreCurve>> scores(Owner owner, Catalog::Row row);

 private:
  struct Cut;                                 // the trimmed records of all layers
  using Counts = std::vector<std::uint32_t>;  // by head of each layer; none: the budget decides
  Task<Result<ScoreCurve>> read_scores(const Owner& owner, const Catalog::Row& row);
  Task<Result<msg::Trimmed>> try_often(Owner owner, msg::TrimPrefix request, Counts counts);
  Task<Result<std::optional<msg::Trimmed>>> attempt(const Owner& owner,
                                                    const msg::TrimPrefix& request,
                                                    const Counts& counts);
  Task<Status> fill(const Owner& owner, const Catalog::Row& row, MutableBytes layer_memory,
                    Cut& cut);
  static Status add_layer(Bytes records, Cut& cut);

  const RewriteParts parts_;
};

}  // namespace precis
