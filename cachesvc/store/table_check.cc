// The format of block-based tables, versions 1 to 5: blocks, then a footer.
//
//   block:  data, type (1 byte), checksum (4 bytes)
//   footer: checksum type (1), handles of the metaindex and the index (40), version (4), magic (8)
//   handle: offset and size of a block's data, varints
//
// The metaindex names the other blocks. Numbers are little endian.
#include "cachesvc/store/table_check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace precis {
namespace {

constexpr std::size_t kFooterBytes = 53;
constexpr std::uint64_t kMagic = 0x88e241b785f4cff7;
constexpr std::uint32_t kNewestKnownVersion = 5;
constexpr char kXxh3 = 4;                          // the checksum type that RocksDB 7 chooses
constexpr std::uint32_t kTypeFactor = 0x6b9083d9;  // mixes a block's type into its checksum
constexpr std::size_t kTrailerBytes = 5;
constexpr std::uint64_t kBlockBytesMax = std::uint64_t{1} << 20;  // of metaindex and properties
static_assert(std::endian::native == std::endian::little);

struct Handle {
  std::uint64_t offset = 0, size = 0;
};

template <typename Number>
Number number_at(std::string_view text, std::size_t at) {
  Number number;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

// Removes a varint from the front of `text`.
std::optional<std::uint64_t> take_varint(std::string_view* text) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && !text->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text->front());
    text->remove_prefix(1);
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return number;
  }
  return {};
}

std::optional<Handle> take_handle(std::string_view* text) {
  const auto offset = take_varint(text);
  const auto size = offset ? take_varint(text) : std::nullopt;
  if (!size) return {};
  return Handle{*offset, *size};
}

class Table {
 public:
  explicit Table(const std::filesystem::path& path) : file_(path, std::ios::binary) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    if (error) size_ = 0;
  }

  // False if the properties do not match their checksum.
  bool properties_match() {
    const auto metaindex = find_metaindex();
    const auto names = metaindex ? read_block(*metaindex) : std::nullopt;
    if (!names || !matches(*names)) return true;
    const auto properties = find_properties(*names);
    const auto block = properties ? read_block(*properties) : std::nullopt;
    return !block || matches(*block);
  }

 private:
  std::optional<std::string> read(std::uint64_t offset, std::size_t size) {
    std::string bytes(size, '\0');
    file_.seekg(static_cast<std::streamoff>(offset));
    if (!file_.read(bytes.data(), static_cast<std::streamsize>(size))) return {};
    return bytes;
  }

  std::optional<Handle> find_metaindex() {
    if (size_ < kFooterBytes) return {};
    const auto footer = read(size_ - kFooterBytes, kFooterBytes);
    if (!footer || footer->front() != kXxh3) return {};
    const auto version = number_at<std::uint32_t>(*footer, kFooterBytes - 12);
    if (number_at<std::uint64_t>(*footer, kFooterBytes - 8) != kMagic) return {};
    if (version == 0 || version > kNewestKnownVersion) return {};
    std::string_view handles = std::string_view(*footer).substr(1, 40);
    return take_handle(&handles);
  }

  // Data and trailer.
  std::optional<std::string> read_block(const Handle& handle) {
    if (handle.size > kBlockBytesMax || handle.offset > size_) return {};
    return read(handle.offset, static_cast<std::size_t>(handle.size) + kTrailerBytes);
  }

  static bool matches(std::string_view block) {
    const std::size_t size = block.size() - kTrailerBytes;
    const auto hash = static_cast<std::uint32_t>(XXH3_64bits(block.data(), size));
    const auto type = static_cast<unsigned char>(block[size]);
    return (hash ^ type * kTypeFactor) == number_at<std::uint32_t>(block, size + 1);
  }

  // An entry: length of the key's prefix shared with the entry before (0 here), lengths of the key
  // and of the value, the key, the value (a handle).
  static std::optional<Handle> find_properties(std::string_view entries) {
    entries.remove_suffix(kTrailerBytes);
    while (!entries.empty()) {
      const auto shared = take_varint(&entries);
      const auto key_size = take_varint(&entries);
      const auto value_size = take_varint(&entries);
      if (shared != 0 || !key_size || !value_size || *key_size > entries.size()) return {};
      const std::string_view key = entries.substr(0, *key_size);
      entries.remove_prefix(*key_size);
      if (*value_size > entries.size()) return {};
      std::string_view value = entries.substr(0, *value_size);
      if (key == "rocksdb.properties") return take_handle(&value);
      entries.remove_prefix(*value_size);
    }
    return {};
  }

  std::ifstream file_;
  std::uint64_t size_ = 0;
};

}  // namespace

Status check_tables(const std::string& dir) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator file(dir, error); !error && file != end;
       file.increment(error)) {
    const auto& path = file->path();
    if (path.extension() != ".sst" || Table(path).properties_match()) continue;
    return Status::corruption(
        "opening the store in " + dir + ": " + path.filename().string() +
        " is damaged: its properties do not match their checksum; restore a backup "
        "(precisctl restore), or begin with an empty directory");
  }
  return {};
}

}  // namespace precis
