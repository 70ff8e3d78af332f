// Memory files as clients share them, valid and invalid.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cachesvc/base/descriptor.h"
#include "precis/view.h"

namespace precis::hostile {

struct FileShape {
  bool sealed = true;    // against shrinking
  bool filled = true;    // every page is present
  bool punched = false;  // a hole in the middle
};

class MemoryFile {
 public:
  MemoryFile() = default;
  explicit MemoryFile(std::size_t size_bytes, const FileShape& shape = {});
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return file_.get(); }
  // Empty if the file is not filled.
  MutableBytes bytes() const { return bytes_; }

 private:
  Descriptor file_;
  MutableBytes bytes_;
};

}  // namespace precis::hostile
