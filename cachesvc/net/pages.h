// Page-aligned memory in a mapping of its own, and such memory that another process maps as well.
//
// A page of a mapped file that is not there, because the file shrank, was punched or found no
// memory, ends the process that touches it (SIGBUS), or is charged to it. So the server maps only a
// memory file that is sealed against shrinking, seals it against holes itself, and then checks that
// every page is there: from then on none can go.
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

  // Zeros, at least `size_bytes`. kOutOfSpace where there is no such memory. Any thread.
  static Result<std::unique_ptr<Pages>> make_private(std::size_t size_bytes);
  // The same as a memory file, with every page there already: a copy into it never waits for
  // memory, which is this process's. A forked child shares it. kUnsupported where the system has no
  // such files.
  static Result<std::unique_ptr<Pages>> make_shared(std::size_t size_bytes);
  // A memory file of exactly `size_bytes` that another process made. Afterwards nobody else can map
  // it for writing. kInvalidArgument for what is no such file, has another size, lacks a seal, has
  // one too many or lacks pages.
  static Result<std::unique_ptr<Pages>> adopt(Descriptor file, std::size_t size_bytes);

  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MutableBytes bytes() const { return bytes_; }
  bool is_writable() const { return writable_; }
  // The memory file, which this object owns; -1 where there is none.
  int descriptor() const { return descriptor_; }

 private:
  Pages(MutableBytes bytes, int descriptor, bool writable = true)
      : bytes_(bytes), descriptor_(descriptor), writable_(writable) {}
  MutableBytes bytes_;
  int descriptor_;
  bool writable_;
};

}  // namespace precis
