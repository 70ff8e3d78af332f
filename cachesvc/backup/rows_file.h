// The file of one backup: every row of the store, and for each payload value its name and size
// instead of its place.
//
//   header  256 B: "precisbk", u32 format 1, u32 zero, u64 time, u64 rows, values, bytes,
//           copied values, copied bytes, damaged, bytes of the frames, the check of the last frame
//           (32 B), zeros, SHA-256 of the 224 bytes before
//   frame   u64 size, check (32 B), rows. The check is the SHA-256 of the check of the frame before
//           and of the rows; before the first frame it is zero.
//   row     u8 table, u32 size of the key, u32 size of the value, key, value
//
// Integers are little-endian. The value of a payload row is the SHA-256 of the payload value and
// its size, u64. Rows of the payload come first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/store/row_store.h"
#include "precis/messages.h"

namespace precis {

struct ValueRow {
  Digest name;
  std::uint64_t size_bytes = 0;
};
std::vector<std::byte> encode_value_row(const ValueRow& row);
Result<ValueRow> decode_value_row(Bytes value);

class RowsWriter {
 public:
  // Replaces the file `path`.
  static Result<RowsWriter> create(const std::string& path);
  Status add(Table table, std::string_view key, Bytes value);
  // Writes the header and syncs the file. row.rows and row.name are not used.
  Status finish(const msg::BackupRow& row);

 private:
  RowsWriter(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Status flush();

  Descriptor file_;
  std::string path_;
  std::vector<std::byte> frame_;
  Digest check_;  // of the last frame
  std::uint64_t rows_ = 0, bytes_ = 0;
};

// The header of the file, without its name. kCorruption, kVersionMismatch, both with the path.
Result<msg::BackupRow> read_backup_header(const std::string& path);

// Visits every row, and checks each frame before its rows are used. kCorruption names the file.
// `frame` is called after the last row of a frame.
struct RowsVisitor {
  std::function<Status(Table table, std::string_view key, Bytes value)> row;
  std::function<Status()> frame = [] { return Status(); };
};
Status visit_rows(const std::string& path, const RowsVisitor& visitor);

}  // namespace precis
