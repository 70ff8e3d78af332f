#include "cachesvc/store/ack_record.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace precis {
namespace {

constexpr std::array<char, 8> kMagic = {'p', 'r', 'e', 'c', 'i', 's', 'a', 'k'};
constexpr std::uint32_t kFormat = 1;
constexpr off_t kSlotBytes = 4096;  // a slot has its own block, so a torn write damages one slot

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

Status failed(const std::string& what, const std::string& path) {
  const std::string message = what + " " + path + ": " + std::strerror(errno);
  return errno == ENOSPC || errno == EDQUOT ? Status::out_of_space(message)
                                            : Status::unavailable(message);
}

Status sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir || ::fsync(dir.get()) != 0) return failed("syncing", folder);
  return {};
}

}  // namespace

// The stored form, in the machine's byte order: little-endian on every machine that runs Precis.
struct AckRecord::Slot {
  std::array<char, 8> magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint32_t doubtful = 0;
  std::uint64_t generation = 0, written = 0, synced = 0;
  std::uint64_t lost_changes = 0, since_unix_ms = 0;
  std::uint32_t record_lost = 0, reserved = 0;
  std::array<char, 40> boot{};
  std::uint64_t checksum = 0;
  std::uint64_t expected_checksum() const { return XXH3_64bits(this, offsetof(Slot, checksum)); }
};

// ---- opening

Result<std::unique_ptr<AckRecord>> AckRecord::open(const std::string& path,
                                                   const AckRecordOptions& options) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return failed("opening", path);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return failed("looking at", path);
  std::unique_ptr<AckRecord> record(
      new AckRecord(std::move(file), path, options.boot.empty() ? boot_id() : options.boot));
  PRECIS_TRY(record->load(found.st_size == 0));
  if (options.sync_in_time) {
    record->syncer_ =
        std::jthread([self = record.get()](const std::stop_token& stop) { self->run(stop); });
  }
  return record;
}

AckRecord::AckRecord(Descriptor file, std::string path, std::string boot)
    : file_(std::move(file)), path_(std::move(path)), boot_(std::move(boot)) {}

AckRecord::~AckRecord() {
  if (syncer_.joinable()) {
    syncer_.request_stop();
    syncer_.join();
  }
  std::unique_lock lock(mutex_);
  if (unsynced_) (void)sync(lock);
}

Status AckRecord::load(bool is_new) {
  if (is_new) {
    const std::array<std::byte, 2 * kSlotBytes> zeros{};
    if (::pwrite(file_.get(), zeros.data(), zeros.size(), 0) !=
        static_cast<ssize_t>(zeros.size())) {
      return failed("writing", path_);
    }
  }
  std::optional<Slot> newest;
  bool is_blank = true;
  for (unsigned i = 0; i < 2; ++i) {
    Slot slot;
    const ssize_t read = ::pread(file_.get(), &slot, sizeof slot, i * kSlotBytes);
    if (read < 0) return failed("reading", path_);
    const auto bytes = std::as_bytes(std::span(&slot, 1)).first(static_cast<std::size_t>(read));
    is_blank =
        is_blank && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
    if (read != sizeof slot || slot.magic != kMagic || slot.checksum != slot.expected_checksum()) {
      continue;
    }
    if (slot.format > kFormat) {
      return Status::version(path_ + " has format " + std::to_string(slot.format) +
                             ", this build reads up to " + std::to_string(kFormat) +
                             ": use the newer build that wrote it");
    }
    if (newest && newest->generation >= slot.generation) continue;
    newest = slot;
    slot_ = 1 - i;
  }
  if (!newest) {
    // A blank file is new: the process that created it died before it noted a change.
    before_.is_new = is_blank;
    before_.is_damaged = !is_blank;
    return {};
  }
  const std::string boot(newest->boot.data(), ::strnlen(newest->boot.data(), newest->boot.size()));
  const bool same_boot = !boot.empty() && boot == boot_;
  generation_ = newest->generation;
  synced_ = newest->synced;  // save() writes it again before another sync
  before_.last = newest->written;
  before_.expected = same_boot ? newest->written : newest->synced;
  if (newest->doubtful != 0) {
    before_.doubt =
        RecoveryDoubt{newest->lost_changes, newest->since_unix_ms, newest->record_lost != 0};
  }
  return {};
}

// ---- writing

Status AckRecord::write_slot() {
  Slot slot;
  slot.generation = ++generation_;
  slot.written = written_;
  slot.synced = synced_;
  if (doubt_) {
    slot.doubtful = 1;
    slot.lost_changes = doubt_->lost_changes;
    slot.since_unix_ms = doubt_->since_unix_ms;
    slot.record_lost = doubt_->record_lost ? 1 : 0;
  }
  boot_.copy(slot.boot.data(), slot.boot.size() - 1);
  slot.checksum = slot.expected_checksum();
  if (::pwrite(file_.get(), &slot, sizeof slot, slot_ * kSlotBytes) != sizeof slot) {
    return failed("writing", path_);
  }
  return {};
}

// Notes that arrive during the sync are written to the same slot and wait for the next sync. If
// none arrive, the slots change roles after the sync. So one slot is always completely on the disk.
Status AckRecord::sync(std::unique_lock<std::mutex>& lock) {
  unsynced_ = false;
  const std::uint64_t generation = generation_;
  lock.unlock();
  const bool synced = ::fdatasync(file_.get()) == 0;
  const Status status = synced ? Status() : failed("syncing", path_);
  lock.lock();
  if (!synced) {
    unsynced_ = true;
    return status;
  }
  if (generation_ == generation) slot_ = 1 - slot_;
  return {};
}

Status AckRecord::save(std::uint64_t number, const std::optional<RecoveryDoubt>& doubt) {
  std::unique_lock lock(mutex_);
  written_ = number;
  synced_ = std::min(synced_, number);
  doubt_ = doubt;
  PRECIS_TRY(write_slot());
  PRECIS_TRY(sync(lock));
  return before_.is_new || before_.is_damaged ? sync_folder_of(path_) : Status();
}

void AckRecord::note(std::uint64_t number, bool synced) {
  {
    const std::lock_guard lock(mutex_);
    written_ = std::max(written_, number);
    if (synced) synced_ = std::max(synced_, number);
    (void)write_slot();
    if (!synced || std::exchange(unsynced_, true)) return;
  }
  wanted_.notify_one();
}

void AckRecord::run(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "ack-record");
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && wanted_.wait(lock, stop, [this] { return unsynced_; })) {
    (void)sync(lock);
    // Commits in quick succession share one sync of the record.
    (void)wanted_.wait_for(lock, stop, kSyncEvery, [] { return false; });
  }
}

}  // namespace precis
