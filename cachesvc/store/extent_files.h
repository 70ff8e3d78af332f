// Stores values in append-only files. A value is written once and never changed. The caller
// remembers each value's place and says which values are still live.
//
// A file has a header of one block (magic, format, number, XXH3), then values that each begin on a
// block. Files are numbered. Appends go to one file at a time, and after opening to a new one.
#pragma once

#include <atomic>
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

#include "cachesvc/store/extent_names.h"
#include "cachesvc/store/extent_pin.h"
#include "cachesvc/store/extent_scan.h"
#include "cachesvc/store/file_pool.h"
#include "cachesvc/store/files.h"
#include "cachesvc/store/held_files.h"
#include "cachesvc/store/payload_store.h"
#include "cachesvc/store/space_guard.h"
#include "precis/limits.h"

namespace precis {

// Thread-safe.
class ExtentFiles {
 public:
  // `live`: all live values. Opening reads no values: values in missing or short files are counted
  // in Stats::missing_bytes, and reading them fails. A file is complete when the next append would
  // exceed `file_bytes`. `guard` may be null; it outlives this object and is asked before every
  // write. kVersionMismatch if a newer build wrote a file.
  static Result<std::unique_ptr<ExtentFiles>> open(std::unique_ptr<Folder> folder,
                                                   std::span<const Extent> live,
                                                   std::uint64_t file_bytes,
                                                   SpaceGuard* guard = nullptr);
  std::uint64_t file_bytes() const { return file_bytes_; }

  // Writes the values and counts them as live. After an error, none of them is stored.
  Result<std::vector<Extent>> append(std::span<const Bytes> values,
                                     WriteUse use = WriteUse::kPayload);
  // After OK, everything appended before survives a crash of the machine. If syncing a file or its
  // name fails, that file is not synced again: its values may be lost, and sync() fails as long as
  // the file has live values.
  Status sync();

  // kRead: a file without live values may be removed meanwhile, because readers have it open.
  // kKeep: the file is neither removed nor emptied by moves, because otherwise too many removed
  // files could stay open.
  using Pinning = PayloadStore::Pinning;
  ExtentPin pin(const Extent& extent, Pinning pinning = Pinning::kRead) const;

  // Files that are held are neither removed, nor punched, nor emptied by moves.
  HeldFiles& held() { return held_; }
  std::set<std::uint32_t> live_files() const;  // those with live values

  // Counts the value as no longer live.
  void free(const Extent& extent);
  // Files without live values, to which nothing is appended. They stay until remove(), because a
  // crash may bring back a row that refers to one of their values.
  std::vector<std::uint32_t> empty_files();
  Status remove(std::span<const std::uint32_t> empty);

  // The complete file with the smallest share of live bytes, if that share is below `live_share`
  // and at least a sixteenth of the file is dead. Skips files that were set aside because they hold
  // unreadable values.
  std::optional<std::uint32_t> sparsest(double live_share) const;
  void set_aside(std::uint32_t number);

  // A dead range of a file that no reader pins. Its space may be returned to the disk once no crash
  // can bring back a row that refers to it.
  struct Hole {
    std::uint32_t file = 0;
    std::uint64_t offset = 0, size = 0;  // B
  };
  std::vector<Hole> holes() const;
  // kUnsupported if the file system cannot punch holes.
  Status punch(std::span<const Hole> holes);

  // [blocking] Checks whether something else has deleted files or their folder. If so, this call
  // and every later append and sync return kUnavailable until the folder is opened again.
  Status check();

  struct Stats {
    std::uint64_t live_bytes = 0;  // of live values
    std::uint64_t file_bytes = 0;  // of all files, without punched ranges
    std::uint64_t files = 0;
    std::uint64_t missing_bytes = 0;  // of values missing from the files at opening
  };
  Stats stats() const;  // waits for nothing; work: a step, whatever the number of files

 private:
  ExtentFiles(std::unique_ptr<Folder> folder, std::uint64_t file_bytes, SpaceGuard* guard)
      : pool_(std::move(folder), limits::kOpenPayloadFilesMax),
        file_bytes_(file_bytes),
        guard_(guard) {}
  Status load(std::span<const Extent> live);
  bool have_many_dirty() const;  // callers hold mutex_
  Status write(FilePool::Handle& file, std::uint64_t offset, std::span<const Bytes> values);
  // Callers hold mutex_. Returns the file to append `size` bytes to.
  Result<std::map<std::uint32_t, ExtentFile>::iterator> file_with_room(std::uint64_t size);

  mutable PinnedPlaces pins_;  // its lock and that of held_ are taken after mutex_
  HeldFiles held_;
  FilePool pool_;
  const std::uint64_t file_bytes_;
  SpaceGuard* const guard_;  // may be null
  std::mutex syncs_;         // one sync at a time; locked before mutex_
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::uint32_t, ExtentFile> files_;
  std::optional<std::uint32_t> open_;  // the file that is appended to
  std::uint32_t next_ = 1;
  Status deleted_;  // set if something else deleted files while they were open
  ExtentNames names_;

  // They are of all files. They change while mutex_ is held, and are read without it, because it is
  // also held while a file is made.
  struct Sums {
    std::atomic<std::uint64_t> live_bytes = 0, file_bytes = 0, files = 0, missing_bytes = 0;
  };
  Sums sums_;
};

}  // namespace precis
