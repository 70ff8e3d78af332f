#include "cachesvc/store/space_guard.h"

#include <algorithm>
#include <utility>

namespace precis {
Result<std::unique_ptr<SpaceGuard>> SpaceGuard::open(std::unique_ptr<Folder> folder,
                                                     std::string path, std::uint64_t min_free_bytes,
                                                     std::chrono::steady_clock::duration calm) {
  PRECIS_ASSIGN(const DiskRoom room, folder->room());
  // An existing reserve file counts only after take_room(): a copied one may be sparse.
  return std::unique_ptr<SpaceGuard>(new SpaceGuard(
      std::move(folder), std::move(path), DiskBudget::of(room.total_bytes, min_free_bytes), calm));
}

Status SpaceGuard::admit(WriteUse use, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  PRECIS_ASSIGN(Room room, measure());
  const auto has = [&](std::uint64_t floor) { return room.free_bytes >= floor + size_bytes; };
  switch (use) {
    case WriteUse::kPayload: {
      if (held_ < budget_.reserve_bytes) {
        restore(room);
        PRECIS_ASSIGN(room, measure());
      }
      if (has(payload_floor())) return {};
      tight_ = true;  // also if only a large value does not fit
      refused_bytes_ = size_bytes;
      refused_at_ = SystemClock().now();
      break;
    }
    case WriteUse::kRows:
      if (has(budget_.reserve_bytes / 2)) return {};
      break;
    case WriteUse::kMakeRoom:
      if (has(budget_.reserve_bytes / 2)) return {};
      release(budget_.reserve_bytes / 2 + size_bytes - room.free_bytes);
      PRECIS_ASSIGN(room, measure());
      if (has(budget_.smallest_free_bytes())) return {};
      break;
  }
  return refuse(use, size_bytes, room);
}

Status SpaceGuard::refuse(WriteUse use, std::uint64_t size_bytes, const Room& room) const {
  const bool makes_room = use == WriteUse::kMakeRoom;
  std::string text = "the disk of " + path_ + " has " + std::to_string(room.free_bytes) +
                     " B free of " + std::to_string(room.total_bytes) + " B, and " +
                     std::to_string(size_bytes) + " B more would leave less than the ";
  if (use == WriteUse::kPayload) {
    text += std::to_string(budget_.min_free_bytes) + " B that are kept free (min_free_bytes)";
    if (held_ < budget_.reserve_bytes) {
      text +=
          ", beside " + std::to_string(budget_.reserve_bytes - held_) + " B that the reserve lacks";
    }
  } else {
    text += std::to_string(makes_room ? budget_.smallest_free_bytes() : budget_.reserve_bytes / 2) +
            " B that rows need";
  }
  text += makes_room ? ": make room on that disk"
                     : ": remove or trim prefixes (precisctl prefix rm, prefix trim), or make room "
                       "on that disk";
  return Status::out_of_space(text + "; puts go on by themselves when there is room");
}

Result<SpaceGuard::Room> SpaceGuard::measure() {
  PRECIS_ASSIGN(const DiskRoom disk, folder_->room());
  Room room{disk.free_bytes, disk.total_bytes, held_, false};
  const std::uint64_t floor = payload_floor();
  if (room.free_bytes >= floor + std::max(floor, refused_bytes_)) refused_bytes_ = 0;
  room.low = room.free_bytes < payload_floor() || refused_bytes_ > 0;
  tight_ = room.free_bytes < 2 * payload_floor();
  return room;
}

void SpaceGuard::note_stored() {
  const std::lock_guard lock(mutex_);
  if (SystemClock().now() - refused_at_ >= calm_) refused_bytes_ = 0;
}

std::uint64_t SpaceGuard::payload_floor() const {
  return budget_.min_free_bytes + (budget_.reserve_bytes - held_);
}

Result<SpaceGuard::Room> SpaceGuard::room() {
  const std::lock_guard lock(mutex_);
  return measure();
}

// ---- the reserve file

void SpaceGuard::release_reserve() {
  const std::lock_guard lock(mutex_);
  release(budget_.reserve_bytes);
}

void SpaceGuard::restore_reserve() {
  const std::lock_guard lock(mutex_);
  if (held_ == budget_.reserve_bytes) return;
  if (const auto room = measure(); room.ok()) restore(*room);
}

// Releases `size_bytes` from the reserve's end, or the whole reserve if that is impossible.
void SpaceGuard::release(std::uint64_t size_bytes) {
  const std::uint64_t gone = whole_blocks(size_bytes);
  if (gone < held_) {
    const auto file = folder_->open(kReserveName);
    if (file.ok() && (*file)->punch(held_ - gone, gone).ok()) {
      (void)(*file)->sync();  // a journal reuses freed blocks only after its commit
      held_ -= gone;
      return;
    }
  }
  held_ = 0;
  (void)folder_->remove(kReserveName);  // fails if there is no reserve
  (void)folder_->sync();
}

// Leaves half of the reserve's size free: with less, the next removal would release the reserve
// again.
void SpaceGuard::restore(const Room& room) {
  const std::uint64_t floor = budget_.reserve_bytes / 2 + budget_.memtable_bytes;
  if (room.free_bytes < floor + budget_.memtable_bytes) return;
  const std::uint64_t more = (room.free_bytes - floor) / kFileBlockBytes * kFileBlockBytes;
  const std::uint64_t size = std::min(budget_.reserve_bytes, held_ + more);
  auto file = folder_->open(kReserveName);
  if (!file.ok()) file = folder_->create(kReserveName);
  if (!file.ok() || !(*file)->take_room(size).ok()) {
    return release(budget_.reserve_bytes);
  }
  held_ = size;
}

}  // namespace precis
