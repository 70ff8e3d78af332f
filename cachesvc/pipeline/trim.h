// trim: read -> cut -> store, of one segment. A budget is a cut, so the stored result is bit for
// bit what a put at that budget would have stored; no stage of compression runs. The segment keeps
// its id, which names what was put; its row says what is left.
//
// A get in progress continues if its cut is still stored, and ends with kNotFound otherwise.
// Putting the segment again restores the removed entries. Loop thread only.
#pragma once

#include <memory>
#include <optional>

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
  // Counts instead of a budget only tell what would be left: kInvalidArgument without dry_run, or
  // if there is not one for each head of each layer.
  Task<Result<msg::Trimmed>> run(Owner owner, msg::TrimPrefix request);
  // The scores of the segment's entries, by which a trim can be chosen. Reads all of it.
  Task<Result<ScoreCurve>> scores(Owner owner, Catalog::Row row);

 private:
  struct Cut;  // the trimmed records of all layers
  Task<Result<ScoreCurve>> read_scores(const Owner& owner, const Catalog::Row& row);
  Task<Result<std::optional<msg::Trimmed>>> attempt(const Owner& owner,
                                                    const msg::TrimPrefix& request);
  Task<Status> fill(const Owner& owner, const Catalog::Row& row, MutableBytes layer_memory,
                    Cut& cut);
  static Status add_layer(Bytes records, Cut& cut);

  const RewriteParts parts_;
};

}  // namespace precis
