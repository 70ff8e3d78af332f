// split: read -> sort the entries by position -> store two segments in place of one. A put does it
// where its path leaves a stored segment, so that both paths share the first part. Both parts have
// the entries of the whole, with its scores and in its order; no stage of compression runs.
//
// The second part keeps the segment's id, so sessions, children and repeated puts find it. A get in
// progress on the whole segment ends with kNotFound, unless a lease keeps it. Loop thread only.
#pragma once

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/rewrite_parts.h"

namespace precis {

class SplitPath {
 public:
  explicit SplitPath(RewriteParts parts) : parts_(parts) {}

  // The most memory that a split may need: both parts, and one layer as it is stored.
  static std::size_t needed_bytes(const SegmentRow& row, const ModelSpec& model);

  // Splits the segment at a block boundary. The first part is part_id(segment, position). OK also
  // if that was done before. kRejected if the segment was split elsewhere meanwhile. Unless
  // `waits`, it does not wait for memory, and is kOutOfSpace if there is none.
  Task<Status> run(Owner owner, SegmentId segment, std::uint32_t position, bool waits);

 private:
  struct Halves;  // the records of both parts
  Task<Result<bool>> attempt(const Owner& owner, const SegmentId& segment, std::uint32_t position,
                             bool waits);
  Task<Status> fill(const Owner& owner, const Catalog::Row& row, MutableBytes layer_memory,
                    Halves& halves);

  const RewriteParts parts_;
};

}  // namespace precis
