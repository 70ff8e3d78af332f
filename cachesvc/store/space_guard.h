// Keeps a disk from filling up under the store. Every writer asks it first. Payload is refused from
// a low-water mark on. Changes that make room (removals, trims, moves) go on; when little is free
// they use the room of a reserve file, which is deleted then and made again when there is room.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/store/disk_budget.h"
#include "cachesvc/store/files.h"
#include "precis/status.h"

namespace precis {

inline constexpr const char* kReserveName = "reserve";

// The purpose of a write.
enum class WriteUse : std::uint8_t {
  kPayload,   // new values: refused below the mark
  kRows,      // new rows alone: refused when only half of the reserve's size is free
  kMakeRoom,  // changes after which less is stored
};

// Thread-safe.
class SpaceGuard {
 public:
  // For the disk that holds `folder`; messages call it `path`. Nothing is written yet.
  // `calm`: how long ago payload was refused for the last time when what is stored counts as a sign
  // that puts go on (note_stored()).
  static Result<std::unique_ptr<SpaceGuard>> open(
      std::unique_ptr<Folder> folder, std::string path, std::uint64_t min_free_bytes = 0,
      std::chrono::steady_clock::duration calm = std::chrono::seconds(10));

  const DiskBudget& budget() const { return budget_; }

  // [blocking] kOutOfSpace, saying what is free and what to do, where `size_bytes` more may not be
  // written for this use.
  Status admit(WriteUse use, std::uint64_t size_bytes);
  // Payload and its rows are stored, so that puts go on.
  void note_stored();
  // [blocking] For a writer that has met a full disk in spite of asking.
  void release_reserve();
  // [blocking] Makes the reserve file whole again, or as large as leaves half of its size free.
  void restore_reserve();

  struct Room {
    std::uint64_t free_bytes = 0, total_bytes = 0;
    std::uint64_t reserve_bytes = 0;  // that the reserve file holds
    // Payload is refused: less than the mark is free, or some was refused and since then neither
    // has twice the mark come free nor was a put stored. A part of a put may fit after its refusal,
    // for what came before it is given back.
    bool low = false;
  };
  // [blocking] As of now.
  Result<Room> room();
  // As of the last of these calls: less than twice the mark is free, or payload was refused. Dead
  // bytes are given back at once then.
  bool tight() const { return tight_; }

 private:
  SpaceGuard(std::unique_ptr<Folder> folder, std::string path, const DiskBudget& budget,
             std::chrono::steady_clock::duration calm)
      : folder_(std::move(folder)), path_(std::move(path)), budget_(budget), calm_(calm) {}
  // With mutex_ held.
  Result<Room> measure();
  void release(std::uint64_t size_bytes);
  void restore(const Room& room);
  std::uint64_t payload_floor() const;  // the mark, and the part of the reserve that is missing
  Status refuse(WriteUse use, std::uint64_t size_bytes, const Room& room) const;

  const std::unique_ptr<Folder> folder_;
  const std::string path_;
  const DiskBudget budget_;
  const std::chrono::steady_clock::duration calm_;
  std::mutex mutex_;
  std::uint64_t held_ = 0;  // guarded by mutex_: bytes that the reserve file holds
  // Guarded by mutex_: payload that was refused last, and when; 0 once puts go on.
  std::uint64_t refused_bytes_ = 0;
  std::chrono::steady_clock::time_point refused_at_;
  std::atomic<bool> tight_ = false;
};

}  // namespace precis
