// Names of payload files, and the header block at their start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/store/files.h"

namespace precis {

std::string extent_file_name(std::uint32_t number);
// None if `name` is no payload file's name.
std::optional<std::uint32_t> extent_file_number(std::string_view name);

Status write_extent_header(File& file, std::uint32_t number);
// kVersionMismatch if a newer build wrote the file. Accepts a damaged header: readers check the
// values themselves.
Status check_extent_header(File& file, const std::string& name);

}  // namespace precis
