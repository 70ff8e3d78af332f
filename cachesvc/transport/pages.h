// Page-aligned memory in a mapping of its own; and such memory that another process of the host may
// map as well, so that a server copies into it and out of it as fast as within itself.
//
// What a process maps of another's file it can be killed with: a page that is not there, because
// the file shrank, was punched or had no room, is a SIGBUS in whoever touches it. So the server
// takes nothing on trust. It maps only a memfd that is sealed against shrinking, seals it itself
// against holes, and then looks whether every page is there: from then on none can go.
#pragma once

#include <cstddef>
#include <memory>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class Pages {
 public:
  // The unit of sizes and addresses: a huge page.
  static constexpr std::size_t kUnitBytes = std::size_t{2} << 20;

  // Zeros, at least `size_bytes`. kOutOfSpace where there is no such memory. Any thread.
  static Result<std::unique_ptr<Pages>> make_private(std::size_t size_bytes);
  // The same as a memfd, every page there already: a copy into it from elsewhere never waits for
  // memory, and what it takes is this process's. A child that is forked shares it and sees it
  // change. kUnsupported where the system has no such files.
  static Result<std::unique_ptr<Pages>> make_shared(std::size_t size_bytes);
  // Another process's, of which this maps exactly `size_bytes`, and closes `descriptor`. Afterwards
  // nobody else can map the file to write to it; who adopts it later still maps it to read.
  // kInvalidArgument for what is not such a file or
  // not of that size, has too few seals or too many, or lacks pages: then `descriptor` stays the
  // caller's, for closing it may take as long as the peer likes.
  static Result<std::unique_ptr<Pages>> adopt(int descriptor, std::size_t size_bytes);

  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MutableBytes bytes() const { return bytes_; }
  bool is_writable() const { return writable_; }
  // Of make_shared()'s file, this object's own; -1 for others.
  int descriptor() const { return descriptor_; }

 private:
  Pages(MutableBytes bytes, int descriptor, bool writable = true)
      : bytes_(bytes), descriptor_(descriptor), writable_(writable) {}
  MutableBytes bytes_;
  int descriptor_;
  bool writable_;
};

}  // namespace precis
