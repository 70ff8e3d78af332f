// The file of a backup, which lies on a disk that others may write to.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>

#include "cachesvc/backup/rows_file.h"
#include "precis/block_digest.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

// Places in the file (rows_file.h).
constexpr std::size_t kHeaderBytes = 256, kFrameBytesAt = 72, kLastCheckAt = 80, kCheckAt = 224;
constexpr std::size_t kFrameHeadBytes = 40, kDigestBytes = sizeof(Digest);

using Rows = std::vector<std::tuple<Table, std::string, std::vector<std::byte>>>;

// A file of this process alone, which its end removes.
class File {
 public:
  File() : path_((std::filesystem::temp_directory_path() / "precis-fuzz-XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    PRECIS_CHECK(file >= 0);
    ::close(file);
  }
  ~File() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

  void write(Bytes bytes) const {
    std::FILE* const file = std::fopen(path_.c_str(), "wb");
    PRECIS_CHECK(file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
    PRECIS_CHECK(std::fclose(file) == 0);
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(std::filesystem::file_size(path_));
    std::FILE* const file = std::fopen(path_.c_str(), "rb");
    PRECIS_CHECK(file && std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size());
    std::fclose(file);
    return bytes;
  }

 private:
  std::string path_;
};

const File& file() {
  static const File kFile;
  return kFile;
}

Result<Rows> read_rows() {
  Rows rows;
  RowsVisitor visitor;
  visitor.row = [&](Table table, std::string_view key, Bytes value) {
    if (const auto decoded = decode_value_row(value); decoded.ok()) {
      PRECIS_CHECK(std::ranges::equal(encode_value_row(*decoded), value));
    }
    rows.emplace_back(table, key, std::vector<std::byte>(value.begin(), value.end()));
    return Status();
  };
  PRECIS_TRY(visit_rows(file().path(), visitor));
  return rows;
}

std::vector<std::byte> file_of(const Rows& rows, const msg::BackupRow& header) {
  auto writer = RowsWriter::create(file().path());
  PRECIS_CHECK(writer.ok());
  for (const auto& [table, key, value] : rows) PRECIS_CHECK(writer->add(table, key, value).ok());
  PRECIS_CHECK(writer->finish(header).ok());
  return file().read();
}

bool check_rows(Bytes input) {
  file().write(input);
  const auto header = read_backup_header(file().path());
  const auto rows = read_rows();
  if (!rows.ok()) {
    PRECIS_CHECK(rows.status().code() == StatusCode::kCorruption ||
                 rows.status().code() == StatusCode::kVersionMismatch);
    return refused(rows.status());
  }
  PRECIS_CHECK(header.ok());
  file_of(*rows, *header);
  PRECIS_CHECK(*read_rows() == *rows);
  return true;
}

// The file with the sizes and checks of its content, so that mutated rows are read.
std::vector<std::byte> mended(Bytes input) {
  std::vector<std::byte> out(input.begin(), input.end());
  if (out.size() < kHeaderBytes) return out;
  const auto put = [&](std::size_t at, const auto& value) {
    std::memcpy(out.data() + at, &value, sizeof value);
  };
  Digest check;
  for (std::size_t at = kHeaderBytes; out.size() - at > kFrameHeadBytes;) {
    std::uint64_t size = 0;
    std::memcpy(&size, out.data() + at, sizeof size);
    size = std::min<std::uint64_t>(size, out.size() - at - kFrameHeadBytes);
    put(at, size);
    const Bytes rows = Bytes(out).subspan(at + kFrameHeadBytes, size);
    std::vector<std::byte> checked(kDigestBytes);
    std::memcpy(checked.data(), check.bytes.data(), kDigestBytes);
    checked.insert(checked.end(), rows.begin(), rows.end());
    check = sha256(checked);
    put(at + sizeof size, check);
    at += kFrameHeadBytes + size;
  }
  put(kFrameBytesAt, static_cast<std::uint64_t>(out.size() - kHeaderBytes));
  put(kLastCheckAt, check);
  put(kCheckAt, sha256(Bytes(out).first(kCheckAt)));
  return out;
}

bool run_backup_rows(Bytes input) {
  const bool accepted = check_rows(input);
  check_rows(mended(input));
  return accepted;
}

Inputs backup_rows_seeds(std::uint64_t seed) {
  testing::RandomMessages random(seed);
  Rows rows;
  for (std::size_t i = 0; i < 5; ++i) {
    ValueRow value;
    value.size_bytes = i * seed;
    const bool is_payload = i < 2;
    rows.emplace_back(is_payload ? Table::kPayload : Table::kMeta, "key" + std::to_string(i),
                      is_payload ? encode_value_row(value) : random.bytes(40 * i));
  }
  msg::BackupRow header;
  header.created_unix_ms = seed;
  header.values = 2;
  return {file_of({}, header), file_of(rows, header)};
}

constexpr Target kTargets[] = {{"read_backup_rows", run_backup_rows, backup_rows_seeds}};

}  // namespace

std::span<const Target> backup_targets() { return kTargets; }

}  // namespace precis::fuzz
