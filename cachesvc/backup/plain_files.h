// Files that are written once, from the beginning to the end, through the page cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// The error for errno: kOutOfSpace, kNotFound, kPermissionDenied, kCorruption for a disk
// that cannot read, else kUnavailable.
Status system_error(const std::string& what);

// Replaces the file; only its owner may read it.
Result<Descriptor> create_plain(const std::string& path);
Result<Descriptor> open_plain(const std::string& path);
// kOutOfSpace if so many bytes of the file can't be held in this machine's memory. A damaged folder
// can have a file of any size, which takes no space on its disk.
Status check_fits_memory(std::uint64_t bytes, const std::string& path);
Result<std::uint64_t> size_of(const Descriptor& file, const std::string& path);
Status write_all(const Descriptor& file, Bytes bytes, const std::string& path);
// kCorruption if the file ends too early.
Status read_exactly(const Descriptor& file, MutableBytes into, const std::string& path);
// After OK, the file survives a crash of the machine. Also for a folder: its names do.
Status sync_plain(const Descriptor& file, const std::string& path);
// After OK, all that was written to the file system of `opened` since it was opened survives a
// crash of the machine.
Status sync_file_system(const Descriptor& opened, const std::string& path);
Status sync_folder(const std::string& dir);
Status rename_plain(const std::string& from, const std::string& to);
Result<std::vector<std::string>> names_in(const std::string& dir);
Result<std::uint64_t> free_bytes_of(const std::string& dir);

}  // namespace precis
