// Values side by side in append-only files. A value is written once and never changed; where it
// lies is the caller's to remember, and which of them still count, the caller's to say.
//
// A file is a header of one block (magic, format, number, XXH3) and values, each from a block's
// begin on. Files are numbered; one at a time is appended to, and after opening a new one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cachesvc/store/file_pool.h"
#include "cachesvc/store/files.h"
#include "cachesvc/store/space_guard.h"
#include "precis/limits.h"

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
  // closed when the next append would make it longer than `file_bytes`. `guard`, if any, outlives
  // these and is asked before anything is written.
  // kVersionMismatch where a newer build wrote one of them.
  static Result<std::unique_ptr<ExtentFiles>> open(std::unique_ptr<Folder> folder,
                                                   std::span<const Extent> live,
                                                   std::uint64_t file_bytes,
                                                   SpaceGuard* guard = nullptr);
  std::uint64_t file_bytes() const { return file_bytes_; }

  // Writes the values and counts them as live. Nothing is kept after an error.
  Result<std::vector<Extent>> append(std::span<const Bytes> values,
                                     WriteUse use = WriteUse::kPayload);
  // Once it returns OK everything appended before survives a crash of the machine. A file that
  // failed to, or whose name did, is asked no more: its values may be lost, and so it goes on
  // failing while it has any.
  Status sync();

  // A value that stays readable while this lives, freed or not. Not for longer than these.
  class Pin {
   public:
    // As many bytes as the value has. kCorruption where its file is missing or short.
    Status read(MutableBytes into) const;
    // The same into memory of its own, which it takes only where the file has these bytes: rows
    // may rot.
    Result<FileBlocks> read() const;
    std::uint64_t size() const { return extent_.size; }  // B

   private:
    friend class ExtentFiles;
    // While one exists, no byte of its value is punched out.
    using Pinned = std::shared_ptr<const void>;
    Pin(std::shared_ptr<FilePool::Handle> file, const Extent& extent, Pinned pinned)
        : file_(std::move(file)), extent_(extent), pinned_(std::move(pinned)) {}
    Result<std::shared_ptr<File>> file() const;
    std::shared_ptr<FilePool::Handle> file_;  // null where it is missing
    Extent extent_;
    Pinned pinned_;
  };
  // A file without live values goes under its readers, which have it open. While a pin of it is
  // kept it does not go: that may be for long, and too many files would be open. Nor is it emptied.
  enum class Pinning : std::uint8_t { kRead, kKeep };
  Pin pin(const Extent& extent, Pinning pinning = Pinning::kRead) const;

  // The value counts no more.
  void free(const Extent& extent);
  // Files none of whose values count; nothing is appended to them any more. They stay until they
  // are removed, for a crash may bring back a row that means one of their values.
  std::vector<std::uint32_t> empty_files();
  Status remove(std::span<const std::uint32_t> empty);

  // The closed file of whose bytes the most count no more, if less than `live_share` of them do,
  // and a sixteenth at least is to be had; not one that is set aside, for it holds what cannot be
  // read.
  std::optional<std::uint32_t> sparsest(double live_share) const;
  void set_aside(std::uint32_t number);

  // A range of a file that holds no value and that no reader pins. Its room can be given back
  // once no crash can bring back a row that refers to it.
  struct Hole {
    std::uint32_t file = 0;
    std::uint64_t offset = 0, size = 0;  // B
  };
  std::vector<Hole> holes() const;
  // kUnsupported where the file system has no such call.
  Status punch(std::span<const Hole> holes);

  // [blocking] Checks whether somebody else has deleted files or their folder. If so it returns
  // kUnavailable, and so does every later append and sync, until the folder is opened anew.
  Status check();

  struct Stats {
    std::uint64_t live_bytes = 0;  // of values that count
    std::uint64_t file_bytes = 0;  // of all files, less what was punched out
    std::uint64_t files = 0;
    std::uint64_t missing_bytes = 0;  // of values that no file had when these were opened
  };
  Stats stats() const;

 private:
  struct Entry {
    std::shared_ptr<FilePool::Handle> file;       // null where it is missing
    std::uint64_t size = 0;                       // end of what was appended, by whatever process
    std::uint64_t live = 0;                       // of values, rounded up to blocks
    std::uint64_t punched = 0;                    // of holes
    std::map<std::uint64_t, std::uint64_t> dead;  // bytes that no value has, by offset; no holes
    bool sound = true;                            // no value overlaps another, or the file's end
    bool dirty = false;                           // perhaps appended to since the last sync
    bool named = false;                           // the folder was synced since it was made
    bool aside = false;
    std::optional<Status> lost;  // why its values may not survive
  };

  struct Pins {
    std::mutex mutex;  // after mutex_
    // Guarded by mutex: what is pinned, as (file, offset, whole blocks in B); files of which a pin
    // is kept.
    std::multiset<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> places;
    std::multiset<std::uint32_t> kept;
  };

  ExtentFiles(std::unique_ptr<Folder> folder, std::uint64_t file_bytes, SpaceGuard* guard)
      : pool_(std::move(folder), limits::kOpenPayloadFilesMax),
        file_bytes_(file_bytes),
        guard_(guard) {}
  Status load(std::span<const Extent> live);
  Status check_names();
  void find_dead(std::span<const Extent> live);
  // With mutex_ held, these two.
  bool have_many_dirty() const;
  void bury(Entry& entry, std::uint64_t offset, std::uint64_t size);
  Status write(const std::shared_ptr<FilePool::Handle>& file, std::uint64_t offset,
               std::span<const Bytes> values);
  // With mutex_ held. The open file, with room for `size` more bytes.
  Result<std::map<std::uint32_t, Entry>::iterator> file_with_room(std::uint64_t size);

  mutable Pins pins_;
  FilePool pool_;
  const std::uint64_t file_bytes_;
  SpaceGuard* const guard_;          // may be null
  std::uint64_t missing_bytes_ = 0;  // constant once loaded
  std::mutex syncs_;                 // one at a time; before mutex_
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::uint32_t, Entry> files_;
  std::optional<std::uint32_t> open_;  // appended to
  std::uint32_t next_ = 1;
  Status deleted_;  // by somebody else, while these were open
  // The folder's stamp at the last look at its names, since when it has had that, and whether a
  // look since then found all files.
  struct Looked {
    std::optional<std::uint64_t> stamp;
    std::chrono::steady_clock::time_point since;
    bool is_whole = false;
  } looked_;
};

}  // namespace precis
