// Moves rows between host memory and pages. The client has its own PageMover for pages in host
// memory; make_cuda_page_mover() makes one for pages on a CUDA device.
#pragma once

#include <memory>
#include <span>

#include "precis/paged_rows.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Thread-safe.
class PageMover {
 public:
  virtual ~PageMover() = default;

  // kInvalidArgument if the pages do not lie wholly in the memory that this mover serves.
  virtual Status check(const PagedRows& pages) const = 0;

  // scatter() copies the rows of `runs` from `rows` to their pages, gather() from their pages to
  // `rows`; no other bytes are written. `keys` and `values` must be valid, have the same page_rows,
  // and have passed check(). The runs' page tables must name enough pages of `keys` and `values`,
  // and the runs' rows must lie within `rows`. All copies are complete on return. kOutOfSpace: the
  // device has no room for the rows beside the pages; kInternal: the device failed. After an error,
  // any of the rows may have been moved.
  virtual Status scatter(Bytes rows, const PagedRows& keys, const PagedRows& values,
                         std::span<const PageRun> runs) = 0;
  virtual Status gather(const PagedRows& keys, const PagedRows& values,
                        std::span<const PageRun> runs, MutableBytes rows) = 0;

  // Pins `memory` so that moves from and to it are fast, until the returned object is destroyed,
  // which must happen before the memory is freed. Null if pinning is not available or not needed.
  virtual std::shared_ptr<void> pin(MutableBytes memory) = 0;
};

namespace kernels {

// A mover for the memory of CUDA device `ordinal`. kUnsupported, with the reason, if this build has
// no CUDA or no code for the device, or the machine has no such device. No call changes the calling
// thread's current device.
Result<std::shared_ptr<PageMover>> make_cuda_page_mover(int ordinal);

}  // namespace kernels
}  // namespace precis
