// Page-aligned memory in its own mapping, optionally shared with another process.
//
// If a page of a mapped file is missing (the file shrank, has a hole, or found no memory), an
// access ends the accessing process (SIGBUS) or charges the page to it. So the server maps only a
// memory file that is sealed against shrinking, seals the file against holes itself, and then
// checks that every page is present: from then on no page can disappear.
#pragma once

#include <cstddef>
#include <memory>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class Pages {
 public:
  // The unit of addresses, and of sizes from this size on: a huge page.
  static constexpr std::size_t kUnitBytes = std::size_t{2} << 20;
  static constexpr std::size_t kSmallPageBytes = 4096;  // the unit of smaller sizes

  // Zeroed memory of at least `size_bytes`. kOutOfSpace if there is none. Any thread.
  static Result<std::unique_ptr<Pages>> make_private(std::size_t size_bytes);
  // Like make_private(), as a memory file whose pages are all present: a copy into it never waits
  // for memory, and this process is charged for it. A forked child shares it. kUnsupported if the
  // system has no such files.
  static Result<std::unique_ptr<Pages>> make_shared(std::size_t size_bytes);
  // Maps a memory file of exactly `size_bytes` that another process made. Afterwards nobody else
  // can map it for writing. kInvalidArgument if it is no such file, has another size, lacks the
  // seal against shrinking, forbids further seals, or lacks pages.
  static Result<std::unique_ptr<Pages>> adopt(Descriptor file, std::size_t size_bytes);

  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MutableBytes bytes() const { return bytes_; }
  bool is_writable() const { return writable_; }
  // The memory file, which this object owns, or -1 if there is none.
  int descriptor() const { return descriptor_; }

 private:
  Pages(MutableBytes bytes, int descriptor, bool writable = true)
      : bytes_(bytes), descriptor_(descriptor), writable_(writable) {}
  MutableBytes bytes_;
  int descriptor_;
  bool writable_;
};

}  // namespace precis
