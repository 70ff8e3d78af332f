#include "cachesvc/store/extent_header.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace precis {
namespace {

constexpr std::string_view kSuffix = ".extents";
constexpr std::uint32_t kFormat = 1;
constexpr std::array<char, 8> kMagic = {'p', 'r', 'e', 'c', 'i', 's', 'x', 't'};

// Magic, format, number, and their XXH3-64; zeros fill the rest of the block.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint32_t number = 0;
  std::uint64_t checksum = 0;
  std::uint64_t expected() const { return XXH3_64bits(this, offsetof(Header, checksum)); }
};
static_assert(sizeof(Header) == 24);

}  // namespace

std::string extent_file_name(std::uint32_t number) {
  std::string digits = std::to_string(number);
  return std::string(10 - digits.size(), '0') + digits + std::string(kSuffix);
}

std::optional<std::uint32_t> extent_file_number(std::string_view name) {
  std::uint32_t number = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, number);
  if (error != std::errc() ||
      std::string_view(end, static_cast<std::size_t>(last - end)) != kSuffix)
    return std::nullopt;
  return extent_file_name(number) == name ? std::optional(number) : std::nullopt;
}

Status write_extent_header(File& file, std::uint32_t number) {
  Header header;
  header.number = number;
  header.checksum = header.expected();
  std::array<std::byte, kFileBlockBytes> block{};
  std::memcpy(block.data(), &header, sizeof header);
  const Bytes value = block;
  return file.write_at(0, {&value, 1});
}

Status check_extent_header(File& file, const std::string& name) {
  Header header;
  if (!file.read_at(0, {reinterpret_cast<std::byte*>(&header), sizeof header}).ok()) return {};
  if (header.magic != kMagic || header.checksum != header.expected()) return {};
  if (header.format <= kFormat) return {};
  return Status::version("payload file " + name + " has format " + std::to_string(header.format) +
                         ", this build reads up to " + std::to_string(kFormat) +
                         ": use the newer build that wrote it");
}

}  // namespace precis
