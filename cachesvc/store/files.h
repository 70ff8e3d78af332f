// The file interface: the operations on files and folders that append-only payload needs. The test
// double (tests/unit/store/faulty_folder.h) defines what a crash of the machine may destroy.
//
// If something else deletes an open file or folder, writes and syncs fail with kUnavailable,
// because no restart would find the data.
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

// Calls block. Thread-safe if threads write to separate ranges.
class File {
 public:
  virtual ~File() = default;
  // Writes the values in order, the first at `offset`, each beginning on a block (kFileBlockBytes).
  // Bytes between values are undefined. Bypasses the page cache if possible, and copies nothing if
  // the values begin on a block in memory. kOutOfSpace if the disk is full. After an error, any
  // part of the bytes may have been written.
  virtual Status write_at(std::uint64_t offset, std::span<const Bytes> values) = 0;
  // Bypasses the page cache if possible, and reads without a copy if `offset` and `into` begin on a
  // block (kFileBlockBytes). kCorruption if the file ends too early.
  virtual Status read_at(std::uint64_t offset, MutableBytes into) = 0;
  // After OK, everything written before survives a crash of the machine. After an error, everything
  // written since the last success may be lost, even if a later call returns OK.
  virtual Status sync() = 0;
  virtual Result<std::uint64_t> size() = 0;
  // Disk space that the file occupies. Holes do not count, even if another process punched them.
  virtual Result<std::uint64_t> taken() = 0;
  // Returns the space of a byte range to the disk: whole blocks, which then read as zeros. The
  // file's size stays. Needs no free space. kUnsupported if the file system cannot do it.
  virtual Status punch(std::uint64_t offset, std::uint64_t size) = 0;
  // Allocates disk space for the file's first `size` bytes, without writing them if possible.
  // kOutOfSpace if there is not enough.
  virtual Status take_room(std::uint64_t size) = 0;
};

// Space on the file system that holds a folder.
struct DiskRoom {
  std::uint64_t free_bytes = 0;   // bytes available to this process
  std::uint64_t total_bytes = 0;  // free and used
};

class Folder {
 public:
  virtual ~Folder() = default;
  // kUnavailable if the name exists.
  virtual Result<std::unique_ptr<File>> create(const std::string& name) = 0;
  // kNotFound if the name does not exist.
  virtual Result<std::unique_ptr<File>> open(const std::string& name) = 0;
  // Removes a name; open files stay readable.
  virtual Status remove(const std::string& name) = 0;
  virtual Result<std::vector<std::string>> names() = 0;
  // A value that changes when names are added or removed. Changes within one second may have the
  // same value. None if the file system has no such value.
  virtual std::optional<std::uint64_t> stamp() = 0;
  // After OK, the present names survive a crash of the machine.
  virtual Status sync() = 0;
  virtual Result<DiskRoom> room() = 0;
  // kUnavailable if the folder itself was deleted.
  virtual Status linked() = 0;
};

inline constexpr std::size_t kFileBlockBytes = 4096;  // a multiple of every disk's block size

// Disk space of a value in whole blocks, in bytes. An empty value takes one block, so that it is
// counted.
constexpr std::uint64_t whole_blocks(std::uint64_t size_bytes) {
  if (size_bytes == 0) return kFileBlockBytes;
  return (size_bytes + kFileBlockBytes - 1) / kFileBlockBytes * kFileBlockBytes;
}

// Block-aligned memory, as direct I/O requires.
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

// The machine's file system at `path`. Creates missing directories.
Result<std::unique_ptr<Folder>> open_posix_folder(const std::string& path);

}  // namespace precis
