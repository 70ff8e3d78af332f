// Finds the mover of rows between host memory and pages: for pages in host memory a copy on the
// caller's thread, for pages on a device the device's mover.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "precis/page_mover.h"
#include "precis/paged_rows.h"
#include "precis/pages.h"
#include "precis/status.h"

namespace precis {

// Thread-safe.
class PageMovers {
 public:
  explicit PageMovers(MakePageMover make);  // null: only pages in host memory are supported
  PageMovers(const PageMovers&) = delete;
  PageMovers& operator=(const PageMovers&) = delete;

  // Before rows are moved, the pages must pass check_paged_rows(). kInvalidArgument if keys and
  // values are in different memory, or not on the device that they name; kUnsupported if this build
  // or machine cannot use that memory.
  Result<std::shared_ptr<PageMover>> find(const PagedRows& keys, const PagedRows& values);

 private:
  Result<std::shared_ptr<PageMover>> on_device(int device);

  const MakePageMover make_;
  const std::shared_ptr<PageMover> host_;
  std::mutex mutex_;
  // Guarded by mutex_; shared with gets and puts.
  std::map<int, std::shared_ptr<PageMover>> devices_;
};

}  // namespace precis
