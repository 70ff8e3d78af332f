#include "tests/unit/store/faulty_folder.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace precis::testing {

class FaultyFile final : public File {
 public:
  FaultyFile(FaultyDrive& drive, std::shared_ptr<FaultyDrive::Inode> inode, std::uint64_t era)
      : drive_(drive), inode_(std::move(inode)), era_(era) {
    ++drive_.open_files_;  // callers hold the drive's mutex
  }
  ~FaultyFile() override {
    std::lock_guard lock(drive_.mutex_);
    --drive_.open_files_;
  }

  Status write_at(std::uint64_t offset, std::span<const Bytes> values) override {
    for (const Bytes value : values) {
      PRECIS_TRY(write(offset, value));
      offset += whole_blocks(value.size());
    }
    return {};
  }

  Status read_at(std::uint64_t offset, MutableBytes into) override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    if (offset + into.size() > inode_->bytes.size()) return Status::corruption("faulty drive: end");
    if (!into.empty()) std::memcpy(into.data(), inode_->bytes.data() + offset, into.size());
    return {};
  }

  Status sync() override {
    std::lock_guard lock(drive_.mutex_);
    ++drive_.syncs_;
    drive_.released_.wait(drive_.mutex_, [this] { return !drive_.syncs_held_; });
    PRECIS_TRY(drive_.operate(era_));
    inode_->synced = inode_->bytes;
    return {};
  }

  Result<std::uint64_t> size() override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    return inode_->bytes.size();
  }

  Result<std::uint64_t> taken() override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    return inode_->taken();
  }

  Status punch(std::uint64_t offset, std::uint64_t size) override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    if (!drive_.punches_) return Status::unsupported("faulty drive: no holes");
    auto& bytes = inode_->bytes;
    for (std::uint64_t at = offset; at < offset + size; at += kFileBlockBytes) {
      if (at >= bytes.size()) break;
      const std::size_t block = std::min<std::uint64_t>(kFileBlockBytes, bytes.size() - at);
      std::memset(bytes.data() + at, 0, block);
      inode_->holes.insert(at);
    }
    return {};
  }

  Status take_room(std::uint64_t size) override {
    const std::vector<std::byte> bytes(size);
    return write(0, bytes);
  }

 private:
  Status write(std::uint64_t offset, Bytes bytes) {
    std::lock_guard lock(drive_.mutex_);
    const Status status = drive_.operate(era_);
    std::uint64_t used = 0;
    for (const auto& [name, inode] : drive_.files_) used += inode->taken();
    auto& file = inode_->bytes;
    // A failed write has written a part.
    std::size_t done = status.ok() ? bytes.size() : bytes.size() / 2;
    const std::uint64_t room = drive_.room_ - std::min(drive_.room_, used);
    const std::uint64_t grows = offset + done > file.size() ? offset + done - file.size() : 0;
    if (grows > room) done -= std::min<std::uint64_t>(done, grows - room);
    if (done > 0) {
      if (file.size() < offset + done) file.resize(offset + done);
      std::memcpy(file.data() + offset, bytes.data(), done);
      inode_->holes.erase(inode_->holes.lower_bound(offset / kFileBlockBytes * kFileBlockBytes),
                          inode_->holes.lower_bound(offset + done));
    }
    if (!status.ok()) return status;
    return done == bytes.size() ? Status() : Status::out_of_space("faulty drive: full");
  }

  FaultyDrive& drive_;
  const std::shared_ptr<FaultyDrive::Inode> inode_;
  const std::uint64_t era_;
};

class FaultyFolder final : public Folder {
 public:
  FaultyFolder(FaultyDrive& drive, std::uint64_t era) : drive_(drive), era_(era) {}

  Result<std::unique_ptr<File>> create(const std::string& name) override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    const auto [file, added] = drive_.files_.try_emplace(name);
    if (!added) return Status::unavailable("faulty drive: there is a file " + name);
    ++drive_.name_changes_;
    file->second = std::make_shared<FaultyDrive::Inode>();
    return std::unique_ptr<File>(std::make_unique<FaultyFile>(drive_, file->second, era_));
  }

  Result<std::unique_ptr<File>> open(const std::string& name) override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    const auto file = drive_.files_.find(name);
    if (file == drive_.files_.end()) return Status::not_found("faulty drive: no file " + name);
    return std::unique_ptr<File>(std::make_unique<FaultyFile>(drive_, file->second, era_));
  }

  Status remove(const std::string& name) override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    if (drive_.files_.erase(name) == 0) return Status::not_found("faulty drive: no file " + name);
    ++drive_.name_changes_;
    return {};
  }

  Result<std::vector<std::string>> names() override {
    {
      std::lock_guard lock(drive_.mutex_);
      PRECIS_TRY(drive_.operate(era_));
    }
    return drive_.names();
  }

  std::optional<std::uint64_t> stamp() override {
    std::lock_guard lock(drive_.mutex_);
    return drive_.name_changes_;
  }

  Status sync() override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    drive_.synced_files_ = drive_.files_;
    return {};
  }

  Result<DiskRoom> room() override {
    std::lock_guard lock(drive_.mutex_);
    PRECIS_TRY(drive_.operate(era_));
    std::uint64_t used = 0;
    for (const auto& [name, inode] : drive_.files_) used += inode->taken();
    return DiskRoom{drive_.room_ - std::min(drive_.room_, used), drive_.room_};
  }

  Status linked() override { return {}; }

 private:
  FaultyDrive& drive_;
  const std::uint64_t era_;
};

std::uint64_t FaultyDrive::Inode::taken() const {
  std::uint64_t taken = bytes.size();
  for (const std::uint64_t hole : holes) {
    taken -= std::min<std::uint64_t>(kFileBlockBytes, bytes.size() - hole);
  }
  return taken;
}

std::unique_ptr<Folder> FaultyDrive::folder() {
  std::lock_guard lock(mutex_);
  return std::make_unique<FaultyFolder>(*this, era_);
}

Status FaultyDrive::operate(std::uint64_t era) {
  released_.wait(mutex_, [this] { return !held_; });
  if (era != era_) return Status::unavailable("faulty drive: the power went");
  if (fails_at_ && operations_ >= *fails_at_) return failure_;
  ++operations_;
  return {};
}

void FaultyDrive::set_room(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  room_ = bytes;
}

void FaultyDrive::set_punches(bool punches) {
  std::lock_guard lock(mutex_);
  punches_ = punches;
}

void FaultyDrive::fail_after(std::uint64_t count, Status status) {
  std::lock_guard lock(mutex_);
  fails_at_ = operations_ + count;
  failure_ = std::move(status);
}

void FaultyDrive::hold(bool held) {
  {
    std::lock_guard lock(mutex_);
    held_ = held;
  }
  released_.notify_all();
}

void FaultyDrive::hold_syncs(bool held) {
  {
    std::lock_guard lock(mutex_);
    syncs_held_ = held;
  }
  released_.notify_all();
}

std::uint64_t FaultyDrive::syncs() const {
  std::lock_guard lock(mutex_);
  return syncs_;
}

std::uint64_t FaultyDrive::operations() const {
  std::lock_guard lock(mutex_);
  return operations_;
}

unsigned FaultyDrive::open_files() const {
  std::lock_guard lock(mutex_);
  return open_files_;
}

void FaultyDrive::flip_bit(const std::string& name, std::uint64_t byte, unsigned bit) {
  std::lock_guard lock(mutex_);
  files_.at(name)->bytes.at(byte) ^= std::byte{1} << bit;
}

void FaultyDrive::cut_file(const std::string& name, std::uint64_t size) {
  std::lock_guard lock(mutex_);
  files_.at(name)->bytes.resize(size);
}

std::vector<std::string> FaultyDrive::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, inode] : files_) names.push_back(name);
  return names;
}

std::uint64_t FaultyDrive::size(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return files_.at(name)->bytes.size();
}

std::uint64_t FaultyDrive::bytes() const {
  std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [name, inode] : files_) sum += inode->taken();
  return sum;
}

void FaultyDrive::lose_power(std::mt19937_64& rng) {
  std::lock_guard lock(mutex_);
  ++era_;
  fails_at_.reset();
  std::set<std::string> names;
  for (const auto* folder : {&files_, &synced_files_}) {
    for (const auto& [name, inode] : *folder) names.insert(name);
  }
  Inodes left;
  for (const std::string& name : names) {
    // A name that was created or removed since the folder's last sync may be in its earlier state.
    const Inodes& from = rng() % 2 == 0 ? files_ : synced_files_;
    if (const auto file = from.find(name); file != from.end()) left.insert(*file);
  }
  for (auto& [name, inode] : left) {
    const std::vector<std::byte>& now = inode->bytes;
    std::vector<std::byte> kept = inode->synced;
    for (std::size_t at = 0; at < now.size(); at += kFileBlockBytes) {
      const std::size_t size = std::min(kFileBlockBytes, now.size() - at);
      const bool same =
          at + size <= kept.size() && std::memcmp(now.data() + at, kept.data() + at, size) == 0;
      if (same || rng() % 2 == 0) continue;
      if (kept.size() < at + size) kept.resize(at + size);
      std::memcpy(kept.data() + at, now.data() + at, size);
    }
    // The bytes of a hole may be anything after a crash, so holes are treated as filled.
    inode = std::make_shared<Inode>(Inode{kept, kept, {}});
  }
  files_ = synced_files_ = std::move(left);
}

}  // namespace precis::testing
