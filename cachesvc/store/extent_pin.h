// Values in payload files that stay readable while their pins exist, even after they were freed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cachesvc/store/file_pool.h"
#include "cachesvc/store/files.h"
#include "cachesvc/store/payload_store.h"

namespace precis {

// One pinned value. Must not outlive the ExtentFiles that made it.
class ExtentPin {
 public:
  // `file` is null if the file is missing. While a copy of `pinned` exists, no byte of the value is
  // punched out.
  ExtentPin(std::shared_ptr<FilePool::Handle> file, const Extent& extent,
            std::shared_ptr<const void> pinned)
      : file_(std::move(file)), extent_(extent), pinned_(std::move(pinned)) {}

  // `into` has the value's size. kCorruption if the file is missing or too short.
  Status read(MutableBytes into) const;
  // Reads into newly allocated memory. Checks first that the file has these bytes, because a
  // damaged row may name any size.
  Result<FileBlocks> read() const;
  std::uint64_t size() const { return extent_.size; }  // B

 private:
  Result<std::shared_ptr<File>> file() const;
  std::shared_ptr<FilePool::Handle> file_;
  Extent extent_;
  std::shared_ptr<const void> pinned_;
};

// The pinned places in all files. Thread-safe; outlives the pins.
class PinnedPlaces {
 public:
  // Pins a place while a copy of the result exists. `keeps`: its file is kept, too.
  std::shared_ptr<const void> pin(const Extent& place, bool keeps);
  bool keeps(std::uint32_t file) const;
  // Returns the parts of [offset, offset + size) without pins, as (offset, size).
  std::vector<std::pair<std::uint64_t, std::uint64_t>> without_pins(std::uint32_t file,
                                                                    std::uint64_t offset,
                                                                    std::uint64_t size) const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_: pinned ranges as (file, offset, whole blocks in bytes), and kept files.
  std::multiset<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> places_;
  std::multiset<std::uint32_t> kept_;
};

}  // namespace precis
