// Names of payload files, and the block that each begins with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/store/files.h"

namespace precis {

std::string extent_file_name(std::uint32_t number);
// None for the name of another file.
std::optional<std::uint32_t> extent_file_number(std::string_view name);

Status write_extent_header(File& file, std::uint32_t number);
// kVersionMismatch where a newer build wrote the file. A damaged header is accepted: it says
// nothing of the values behind it, which their readers check.
Status check_extent_header(File& file, const std::string& name);

}  // namespace precis
