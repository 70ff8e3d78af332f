// Keeps the store from filling its disk. Every writer asks the guard before it writes. Below a
// low-water mark, payload is refused. Changes that reduce the stored bytes (removals, trims, moves)
// are still admitted. If little space is free, they use the space of a reserve file, which is
// deleted for them and restored later.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/base/clock.h"
#include "cachesvc/store/disk_budget.h"
#include "cachesvc/store/files.h"
#include "precis/status.h"

namespace precis {

inline constexpr const char* kReserveName = "reserve";

// The purpose of a write.
enum class WriteUse : std::uint8_t {
  kPayload,   // new values: refused below the mark
  kRows,      // new rows only: refused if less than half of the reserve's size is free
  kMakeRoom,  // changes that reduce the stored bytes
};

// Thread-safe.
class SpaceGuard {
 public:
  // For the disk that holds `folder`; messages call it `path`. Writes nothing. `calm`:
  // note_stored() ends the refusing state (Room::low) only if the last refusal is at least this
  // long ago.
  static Result<std::unique_ptr<SpaceGuard>> open(
      std::unique_ptr<Folder> folder, std::string path, std::uint64_t min_free_bytes = 0,
      std::chrono::steady_clock::duration calm = std::chrono::seconds(10));

  const DiskBudget& budget() const { return budget_; }

  // [blocking] kOutOfSpace if `size_bytes` more must not be written for this use. The message gives
  // the free space and advice.
  Status admit(WriteUse use, std::uint64_t size_bytes);
  // Notes that a put's payload and rows were stored, so puts succeed again.
  void note_stored();
  // [blocking] Deletes the reserve, for a writer that met a full disk although it had asked.
  void release_reserve();
  // [blocking] Restores the reserve file to its full size, or less so that half of that size stays
  // free.
  void restore_reserve();

  struct Room {
    std::uint64_t free_bytes = 0, total_bytes = 0;
    std::uint64_t reserve_bytes = 0;  // size of the reserve file
    // True if payload is refused: less than the mark is free, or payload was refused and since then
    // neither twice the mark (more for a larger put) came free nor was a put stored. That payload
    // fits now is no sign: after a refusal, space of the put's earlier parts is freed.
    bool low = false;
  };
  // [blocking] Measures the disk.
  Result<Room> room();
  // State at the last call of these functions: less than twice the mark is free, or payload was
  // refused. Dead bytes are then reclaimed at once.
  bool tight() const { return tight_; }

 private:
  SpaceGuard(std::unique_ptr<Folder> folder, std::string path, const DiskBudget& budget,
             std::chrono::steady_clock::duration calm)
      : folder_(std::move(folder)), path_(std::move(path)), budget_(budget), calm_(calm) {}
  // Callers hold mutex_ for the functions below.
  Result<Room> measure();
  void release(std::uint64_t size_bytes);
  void restore(const Room& room);
  std::uint64_t payload_floor() const;  // the mark plus the missing part of the reserve
  Status refuse(WriteUse use, std::uint64_t size_bytes, const Room& room) const;

  const std::unique_ptr<Folder> folder_;
  const std::string path_;
  const DiskBudget budget_;
  const std::chrono::steady_clock::duration calm_;
  std::mutex mutex_;
  std::uint64_t held_ = 0;  // guarded by mutex_: size of the reserve file
  // Guarded by mutex_: size and time of the last refusal; size 0 once puts succeed again.
  std::uint64_t refused_bytes_ = 0;
  std::chrono::steady_clock::time_point refused_at_;
  std::atomic<bool> tight_ = false;
};

}  // namespace precis
