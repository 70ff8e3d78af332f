// Rows between host memory and pages. The client moves to and from pages in host memory itself;
// here is who does it for pages on a CUDA device.
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

  // kInvalidArgument where pages begin or end elsewhere than in the memory that this moves to.
  virtual Status check(const PagedRows& pages) const = 0;

  // Copies the runs' rows of `rows` to their pages, or of their pages to `rows`; nothing else of
  // either is written. `keys` and `values` are sound, of one page_rows, and passed check(); the
  // runs' tables name pages of theirs, enough of them, and their rows lie within `rows`. All is
  // done on return. kOutOfSpace: the device has no room for the rows beside the pages; kInternal:
  // it failed. Then any of the rows may have been moved.
  virtual Status scatter(Bytes rows, const PagedRows& keys, const PagedRows& values,
                         std::span<const PageRun> runs) = 0;
  virtual Status gather(const PagedRows& keys, const PagedRows& values,
                        std::span<const PageRun> runs, MutableBytes rows) = 0;

  // Makes moving from and to `memory` fast until the pin is destroyed, which must be before the
  // memory is. Null where that is not to be had, or not needed.
  virtual std::shared_ptr<void> pin(MutableBytes memory) = 0;
};

namespace kernels {

// For the memory of CUDA device `ordinal`. kUnsupported, with the reason, where this build has no
// CUDA or no code for the device, or the machine no such device. The calling thread's current
// device is the same after each call.
Result<std::shared_ptr<PageMover>> make_cuda_page_mover(int ordinal);

}  // namespace kernels
}  // namespace precis
