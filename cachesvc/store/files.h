// The file seam: a folder of files as append-only payload needs one. What a crash of the machine
// may take from them is what their test double takes (tests/unit/store/faulty_folder.h).
//
// A file or folder that somebody else deletes while it is open is noticed: writing and syncing it
// fail with kUnavailable, since nothing finds it after a restart.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Calls block. Safe from several threads where they write to ranges of their own.
class File {
 public:
  virtual ~File() = default;
  // The values one after the other, each from a block's begin (kFileBlockBytes), the first from
  // `offset` on; what lies between them is undefined. Around the machine's cache where that can be:
  // at best the values, too, begin on a block in memory. kOutOfSpace where the disk is full. After
  // an error any part of the bytes may be there.
  virtual Status write_at(std::uint64_t offset, std::span<const Bytes> values) = 0;
  // From the disk itself where `offset` and `into` begin on a block (kFileBlockBytes), around the
  // machine's cache. kCorruption where the file ends before.
  virtual Status read_at(std::uint64_t offset, MutableBytes into) = 0;
  // Once it returns OK what was written before survives a crash of the machine. After an error what
  // was written since the last success may be lost, whatever a later call says.
  virtual Status sync() = 0;
  virtual Result<std::uint64_t> size() = 0;
  // The bytes that it takes on the disk: without holes, by whomever they were punched.
  virtual Result<std::uint64_t> taken() = 0;
  // Gives the bytes' room back to the disk: whole blocks, that read as zeros from then on. The size
  // stays. Needs no room itself. kUnsupported where the file system cannot do it.
  virtual Status punch(std::uint64_t offset, std::uint64_t size) = 0;
  // Takes the room of `size` bytes from the disk, without writing them where that can be.
  // kOutOfSpace where there is less.
  virtual Status take_room(std::uint64_t size) = 0;
};

// The file system that a folder lies on.
struct DiskRoom {
  std::uint64_t free_bytes = 0;   // that this process may write
  std::uint64_t total_bytes = 0;  // free or not
};

class Folder {
 public:
  virtual ~Folder() = default;
  // kUnavailable where there is one of that name.
  virtual Result<std::unique_ptr<File>> create(const std::string& name) = 0;
  // kNotFound where there is none.
  virtual Result<std::unique_ptr<File>> open(const std::string& name) = 0;
  // Open files stay readable.
  virtual Status remove(const std::string& name) = 0;
  virtual Result<std::vector<std::string>> names() = 0;
  // Differs from one call to another where names came or went between them, but for changes within
  // the same second. None where the file system does not say.
  virtual std::optional<std::uint64_t> stamp() = 0;
  // Which names there are survives a crash of the machine.
  virtual Status sync() = 0;
  virtual Result<DiskRoom> room() = 0;
  // kUnavailable where the folder itself was deleted.
  virtual Status linked() = 0;
};

inline constexpr std::size_t kFileBlockBytes = 4096;  // a multiple of what any disk reads at once

// The blocks that a value takes, in bytes; an empty one takes one too, so that it counts.
constexpr std::uint64_t whole_blocks(std::uint64_t size_bytes) {
  if (size_bytes == 0) return kFileBlockBytes;
  return (size_bytes + kFileBlockBytes - 1) / kFileBlockBytes * kFileBlockBytes;
}

// Memory as reading and writing around the machine's cache wants it: from a block's begin on.
class FileBlocks {
 public:
  FileBlocks() = default;
  explicit FileBlocks(std::size_t size_bytes);  // undefined bytes; throws std::bad_alloc
  MutableBytes bytes() const { return {memory_.get(), size_bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_bytes_ = 0;
};

// The machine's, at `path`, which is made where it is missing.
Result<std::unique_ptr<Folder>> open_posix_folder(const std::string& path);

}  // namespace precis
