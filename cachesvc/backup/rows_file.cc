#include "cachesvc/backup/rows_file.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "cachesvc/backup/plain_files.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kFrameBytes = 1u << 20;         // a frame with this many ends
constexpr std::uint64_t kFrameBytesMax = 256u << 20;  // also with one very large row
constexpr std::size_t kRowHeadBytes = 1 + 2 * sizeof(std::uint32_t);

struct Header {
  std::array<char, 8> magic{'p', 'r', 'e', 'c', 'i', 's', 'b', 'k'};
  std::uint32_t format = kFormat, zero = 0;
  std::uint64_t created_unix_ms = 0, rows = 0, values = 0, bytes = 0, copied_values = 0,
                copied_bytes = 0, damaged = 0, frame_bytes = 0;
  Digest last_check;
  std::array<std::byte, 112> zeros{};
  Digest check;
};
static_assert(sizeof(Header) == 256);

struct FrameHead {
  std::uint64_t size = 0;
  Digest check;
};
static_assert(sizeof(FrameHead) == 40);

template <typename T>
Bytes bytes_of(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}
template <typename T>
MutableBytes bytes_into(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof value};
}

Digest check_of(const Header& header) {
  return sha256(bytes_of(header).first(offsetof(Header, check)));
}

// `frame` begins with room for the previous check.
Digest check_of(const Digest& previous, std::vector<std::byte>& frame) {
  std::memcpy(frame.data(), previous.bytes.data(), sizeof previous);
  return sha256(frame);
}

Result<Header> read_header(const Descriptor& file, const std::string& path) {
  Header header;
  PRECIS_TRY(read_exactly(file, bytes_into(header), path));
  if (header.magic != Header().magic) {
    return Status::corruption(path + " is not the file of a complete backup");
  }
  if (header.check != check_of(header)) {
    return Status::corruption(path + " is damaged: its header fails its check");
  }
  if (header.format > kFormat) {
    return Status::version(path + " has format " + std::to_string(header.format) +
                           ", this build reads up to " + std::to_string(kFormat) +
                           ": use the newer build that wrote it");
  }
  return header;
}

// Takes a number of bytes from the front of `rest`; false if there are fewer.
bool take(Bytes& rest, std::size_t size, Bytes& into) {
  if (rest.size() < size) return false;
  into = rest.first(size);
  rest = rest.subspan(size);
  return true;
}

Status visit_frame(Bytes rest, const std::string& path, const RowsVisitor& visitor) {
  while (!rest.empty()) {
    Bytes head, key, value;
    std::array<std::uint32_t, 2> sizes{};
    bool whole = take(rest, kRowHeadBytes, head);
    if (whole) std::memcpy(sizes.data(), head.data() + 1, sizeof sizes);
    whole = whole && take(rest, sizes[0], key) && take(rest, sizes[1], value);
    if (!whole || std::to_integer<std::size_t>(head[0]) >= kTableCount) {
      return Status::corruption(path + " has a row that this build cannot read");
    }
    PRECIS_TRY(visitor.row(static_cast<Table>(head[0]),
                           {reinterpret_cast<const char*>(key.data()), key.size()}, value));
  }
  return visitor.frame();
}

}  // namespace

std::vector<std::byte> encode_value_row(const ValueRow& row) {
  std::vector<std::byte> value(sizeof row.name + sizeof row.size_bytes);
  std::memcpy(value.data(), row.name.bytes.data(), sizeof row.name);
  std::memcpy(value.data() + sizeof row.name, &row.size_bytes, sizeof row.size_bytes);
  return value;
}

Result<ValueRow> decode_value_row(Bytes value) {
  ValueRow row;
  if (value.size() != sizeof row.name + sizeof row.size_bytes) {
    return Status::corruption("the row of a value has " + std::to_string(value.size()) + " B");
  }
  std::memcpy(row.name.bytes.data(), value.data(), sizeof row.name);
  std::memcpy(&row.size_bytes, value.data() + sizeof row.name, sizeof row.size_bytes);
  return row;
}

Result<RowsWriter> RowsWriter::create(const std::string& path) {
  PRECIS_ASSIGN(Descriptor file, create_plain(path));
  Header unwritten;
  unwritten.magic = {};
  PRECIS_TRY(write_all(file, bytes_of(unwritten), path));
  return RowsWriter(std::move(file), path);
}

Status RowsWriter::add(Table table, std::string_view key, Bytes value) {
  if (frame_.empty()) frame_.resize(sizeof check_);
  const std::array<std::uint32_t, 2> sizes{static_cast<std::uint32_t>(key.size()),
                                           static_cast<std::uint32_t>(value.size())};
  const auto append = [&](Bytes bytes) { frame_.insert(frame_.end(), bytes.begin(), bytes.end()); };
  frame_.push_back(static_cast<std::byte>(table));
  append(bytes_of(sizes));
  append({reinterpret_cast<const std::byte*>(key.data()), key.size()});
  append(value);
  ++rows_;
  return frame_.size() < kFrameBytes ? Status() : flush();
}

Status RowsWriter::flush() {
  if (frame_.empty()) return {};
  check_ = check_of(check_, frame_);
  const Bytes rows = Bytes(frame_).subspan(sizeof check_);
  const FrameHead head{rows.size(), check_};
  PRECIS_TRY(write_all(file_, bytes_of(head), path_));
  PRECIS_TRY(write_all(file_, rows, path_));
  bytes_ += sizeof head + rows.size();
  frame_.clear();
  return {};
}

Status RowsWriter::finish(const msg::BackupRow& row) {
  PRECIS_TRY(flush());
  Header header;
  header.created_unix_ms = row.created_unix_ms;
  header.rows = rows_;
  header.values = row.values;
  header.bytes = row.bytes;
  header.copied_values = row.copied_values;
  header.copied_bytes = row.copied_bytes;
  header.damaged = row.damaged;
  header.frame_bytes = bytes_;
  header.last_check = check_;
  header.check = check_of(header);
  if (::lseek(file_.get(), 0, SEEK_SET) != 0) return system_error("writing " + path_);
  PRECIS_TRY(write_all(file_, bytes_of(header), path_));
  return sync_plain(file_, path_);
}

Result<msg::BackupRow> read_backup_header(const std::string& path) {
  PRECIS_ASSIGN(const Descriptor file, open_plain(path));
  PRECIS_TRY(size_of(file, path).status());
  PRECIS_ASSIGN(const Header header, read_header(file, path));
  msg::BackupRow row;
  row.created_unix_ms = header.created_unix_ms;
  row.values = header.values;
  row.bytes = header.bytes;
  row.copied_values = header.copied_values;
  row.copied_bytes = header.copied_bytes;
  row.damaged = header.damaged;
  return row;
}

Status visit_rows(const std::string& path, const RowsVisitor& visitor) {
  PRECIS_ASSIGN(const Descriptor file, open_plain(path));
  PRECIS_ASSIGN(const std::uint64_t size, size_of(file, path));
  PRECIS_ASSIGN(const Header header, read_header(file, path));
  const auto damaged = [&](const char* why) { return Status::corruption(path + ": " + why); };
  if (size != sizeof header + header.frame_bytes) return damaged("it has another size");
  Digest check;
  for (std::uint64_t left = header.frame_bytes; left > 0;) {
    FrameHead head;
    if (left < sizeof head) return damaged("its last rows are missing");
    PRECIS_TRY(read_exactly(file, bytes_into(head), path));
    left -= sizeof head;
    if (head.size > left || head.size > kFrameBytesMax) return damaged("a size in it is damaged");
    std::vector<std::byte> frame(sizeof check + head.size);
    PRECIS_TRY(read_exactly(file, MutableBytes(frame).subspan(sizeof check), path));
    left -= head.size;
    check = check_of(check, frame);
    if (check != head.check) return damaged("rows in it are damaged");
    PRECIS_TRY(visit_frame(Bytes(frame).subspan(sizeof check), path, visitor));
  }
  return check == header.last_check ? Status() : damaged("its last rows are missing");
}

}  // namespace precis
