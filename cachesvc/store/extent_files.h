// Values side by side in append-only files. A value is written once and never changed; where it
// lies is the caller's to remember, and which of them still count, the caller's to say.
//
// A file is a header of one block (magic, format, number, XXH3) and values, each from a block's
// begin on. Files are numbered; one at a time is appended to, and after opening a new one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cachesvc/store/files.h"

namespace precis {

// Where a value lies.
struct Extent {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, size = 0;  // B
  friend bool operator==(const Extent&, const Extent&) = default;
};

// Thread-safe.
class ExtentFiles {
 public:
  // `live`: every value that counts. Of files that are missing or short nothing is read yet:
  // stats() says how much they had, and who reads a value is told. A file is
  // closed when the next append would make it longer than `file_bytes`.
  // kVersionMismatch where a newer build wrote one of them.
  static Result<std::unique_ptr<ExtentFiles>> open(std::unique_ptr<Folder> folder,
                                                   std::span<const Extent> live,
                                                   std::uint64_t file_bytes);

  // Writes the values and counts them as live. Nothing is kept after an error.
  Result<std::vector<Extent>> append(std::span<const Bytes> values);
  // Once it returns OK everything appended before survives a crash of the machine. A file that
  // failed to, or whose name did, is asked no more: its values may be lost, and so it goes on
  // failing while it has any.
  Status sync();

  // A value that stays readable while this lives, freed or not.
  class Pin {
   public:
    // As many bytes as the value has. kCorruption where its file is missing or short.
    Status read(MutableBytes into) const;
    // The same into memory of its own, which it takes only where the file has these bytes: rows
    // may rot.
    Result<FileBlocks> read() const;

   private:
    friend class ExtentFiles;
    Pin(std::shared_ptr<File> file, const Extent& extent)
        : file_(std::move(file)), extent_(extent) {}
    Status missing() const;
    std::shared_ptr<File> file_;  // null where it is missing
    Extent extent_;
  };
  Pin pin(const Extent& extent) const;

  // The value counts no more.
  void free(const Extent& extent);
  // Files none of whose values count; nothing is appended to them any more. They stay until they
  // are removed, for a crash may bring back a row that means one of their values.
  std::vector<std::uint32_t> empty_files();
  Status remove(std::span<const std::uint32_t> empty);

  // The closed file of whose bytes the most count no more, if less than `live_share` of them do;
  // not one that is set aside, for it holds what cannot be read.
  std::optional<std::uint32_t> sparsest(double live_share) const;
  void set_aside(std::uint32_t number);

  struct Stats {
    std::uint64_t live_bytes = 0;  // of values that count
    std::uint64_t file_bytes = 0;  // of all files
    std::uint64_t files = 0;
    std::uint64_t missing_bytes = 0;  // of values that no file had when these were opened
  };
  Stats stats() const;

 private:
  struct Entry {
    std::shared_ptr<File> file;  // null where it is missing
    std::uint64_t size = 0;      // end of what was appended, by whatever process
    std::uint64_t live = 0;      // of values, rounded up to blocks
    bool dirty = false;          // perhaps appended to since the last sync
    bool named = false;          // the folder was synced since it was made
    bool aside = false;
    std::optional<Status> lost;  // why its values may not survive
  };

  ExtentFiles(std::unique_ptr<Folder> folder, std::uint64_t file_bytes)
      : folder_(std::move(folder)), file_bytes_(file_bytes) {}
  Status load(std::span<const Extent> live);
  // With mutex_ held. The open file, with room for `size` more bytes.
  Result<std::map<std::uint32_t, Entry>::iterator> file_with_room(std::uint64_t size);

  const std::unique_ptr<Folder> folder_;
  const std::uint64_t file_bytes_;
  std::uint64_t missing_bytes_ = 0;  // constant once loaded
  std::mutex syncs_;                 // one at a time; before mutex_
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::uint32_t, Entry> files_;
  std::optional<std::uint32_t> open_;  // appended to
  std::uint32_t next_ = 1;
};

}  // namespace precis
