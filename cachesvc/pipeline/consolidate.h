// consolidate: read -> order the entries by seat -> store one segment in place of a run of them,
// the inverse of a split. The entries, their scores and positions do not change, and no stage of
// compression runs. merged_seats.h has the order.
//
// The segment has the id of the run's last one, so children, sessions and lookups find it, and the
// ids of the others then name it too. The former segments stay readable for kFormerMs, so gets in
// progress and matches that were found before go on. Loop thread only.
#pragma once

#include <vector>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/rewrite_parts.h"

namespace precis {

class ConsolidatePath {
 public:
  explicit ConsolidatePath(RewriteParts parts) : parts_(parts) {}

  static constexpr std::uint32_t kFormerMs = 10'000;

  // The row of a run of two segments or more (Catalog::mergeable), of this model.
  static Result<SegmentRow> merged_row(const std::vector<Catalog::Row>& run,
                                       const ModelSpec& model);
  // Makes the run one segment. It takes only memory that is free: kOutOfSpace if there is too
  // little. False if the run changed meanwhile, or can't stay readable (Catalog::lease).
  Task<Result<bool>> run(Owner owner, std::vector<Catalog::Row> run);

 private:
  struct Merge;  // the records of a run and of what it becomes
  Task<Status> fill(const Owner& owner, Merge& merge);

  const RewriteParts parts_;
};

}  // namespace precis
