#include "tests/integration/small_disk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tests/integration/process.h"

namespace precis::testing {

Result<std::unique_ptr<SmallDisk>> SmallDisk::mount(DiskKind kind, std::uint64_t size_bytes) {
  namespace fs = std::filesystem;
  std::string dir = (fs::temp_directory_path() / "precis-disk-XXXXXX").string();
  PRECIS_CHECK(::mkdtemp(dir.data()) != nullptr);
  std::unique_ptr<SmallDisk> disk(new SmallDisk(dir));
  fs::create_directory(dir + "/disk");
  std::vector<std::string> how{"/usr/bin/env", "mount"};
  const std::string image = dir + "/image";
  if (kind == DiskKind::kTmpfs) {
    const std::string size = "size=" + std::to_string(size_bytes);
    how.insert(how.end(), {"-t", "tmpfs", "-o", size, "tmpfs"});
  } else {
    const int file = ::open(image.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool made = file >= 0 && ::ftruncate(file, static_cast<off_t>(size_bytes)) == 0;
    ::close(file);
    PRECIS_CHECK(made);
    const Ran ran = run({"/usr/bin/env", "mkfs.ext4", "-q", "-F", "-m", "0", image});
    if (ran.exit_code != 0) return Status::unsupported("mkfs.ext4: " + ran.err);
    how.insert(how.end(), {"-o", "loop", image});
  }
  how.push_back(dir + "/disk");
  const Ran ran = run(how);
  if (ran.exit_code != 0) return Status::unsupported("mount: " + ran.err);
  disk->mounted_ = true;
  return disk;
}

SmallDisk::~SmallDisk() {
  if (mounted_) ::umount2((dir_ + "/disk").c_str(), MNT_DETACH);
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

std::uint64_t SmallDisk::free_bytes() const {
  struct statvfs told {};
  PRECIS_CHECK(::statvfs((dir_ + "/disk").c_str(), &told) == 0);
  return std::uint64_t{told.f_bavail} * told.f_frsize;
}

void SmallDisk::fill_up(const std::string& name) const {
  const int file = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  PRECIS_CHECK(file >= 0);
  std::vector<char> bytes(1u << 20, 'x');
  while (!bytes.empty()) {
    if (::write(file, bytes.data(), bytes.size()) <= 0) bytes.resize(bytes.size() / 2);
  }
  ::fsync(file);
  ::close(file);
}

}  // namespace precis::testing
