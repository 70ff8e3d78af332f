// The files and rows that a store reads when it opens: rows that locate payload, and payload files.
#include <algorithm>
#include <cstring>
#include <string>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/extent_row.h"
#include "cachesvc/store/extent_store.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"
#include "tests/unit/store/faulty_folder.h"
#include "tests/unit/store/memory_rows.h"

namespace precis::fuzz {
namespace {

using testing::FaultyDrive;

constexpr std::uint64_t kFileBytes = 64 << 10;
constexpr std::size_t kHeaderBytes = 24;
const char* const kFileName = "0000000001.extents";

// ---- one row

bool run_extent_row(Bytes input) {
  const auto extent = decode_extent(input);
  if (extent) PRECIS_CHECK(std::ranges::equal(encode_extent(*extent), input));
  return extent.has_value();
}

Inputs extent_row_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (const Extent& extent : {Extent{1, 4096, 10}, Extent{7, seed * kFileBlockBytes, 0}}) {
    const ExtentRow row = encode_extent(extent);
    inputs.emplace_back(row.begin(), row.end());
  }
  return inputs;
}

// ---- a store: the number of its rows (u8), the rows, the header of payload file 1, the bytes
// after the header's block

struct Disk {
  std::vector<Bytes> rows;
  std::vector<std::byte> file;
};

Disk read_disk(Bytes input) {
  Disk disk;
  if (input.empty()) return disk;
  const auto count = std::to_integer<std::size_t>(input.front());
  input = input.subspan(1);
  while (disk.rows.size() < count && input.size() >= sizeof(ExtentRow)) {
    disk.rows.push_back(input.first(sizeof(ExtentRow)));
    input = input.subspan(sizeof(ExtentRow));
  }
  const Bytes header = input.first(std::min(input.size(), kHeaderBytes));
  disk.file.assign(header.begin(), header.end());
  input = input.subspan(header.size());
  if (input.empty()) return disk;
  disk.file.resize(kFileBlockBytes);
  disk.file.insert(disk.file.end(), input.begin(), input.end());
  return disk;
}

std::vector<std::byte> write_disk(const Disk& disk) {
  std::vector<std::byte> out{static_cast<std::byte>(disk.rows.size())};
  const auto append = [&](Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  for (const Bytes row : disk.rows) append(row);
  append(Bytes(disk.file).first(kHeaderBytes));
  append(Bytes(disk.file).subspan(kFileBlockBytes));
  return out;
}

// Checks that a readable value equals the bytes at its place, and that the store accepts and
// returns new values whatever is on the disk.
bool run_open_store(Bytes input) {
  const Disk disk = read_disk(input);
  FaultyDrive drive;
  const Bytes file = disk.file;
  PRECIS_CHECK((*drive.folder()->create(kFileName))->write_at(0, {&file, 1}).ok());
  auto rows = std::make_unique<testing::MemoryRows>();
  for (std::size_t i = 0; i < disk.rows.size(); ++i) {
    PRECIS_CHECK(
        rows->write({{{Table::kPayload, std::to_string(i), disk.rows[i]}}, {}}, Durability::kWal)
            .ok());
  }
  const auto opened = open_extent_store(std::move(rows), drive.folder(),
                                        {.file_bytes = kFileBytes, .tidy_after = {}});
  if (!opened.ok()) {
    PRECIS_CHECK(opened.status().code() == StatusCode::kVersionMismatch);
    return false;
  }
  Store& store = **opened;
  StoreBatch removal;
  for (std::size_t i = 0; i < disk.rows.size(); ++i) {
    const auto extent = decode_extent(disk.rows[i]);
    const auto value = store.read(std::to_string(i));
    if (!value.ok()) {
      PRECIS_CHECK(value.status().code() ==
                   (extent ? StatusCode::kCorruption : StatusCode::kNotFound));
      continue;
    }
    PRECIS_CHECK(extent && extent->file == 1);
    PRECIS_CHECK(
        std::ranges::equal(*value, Bytes(disk.file).subspan(extent->offset, extent->size)));
  }
  const std::vector<std::byte> added(5000, std::byte{7});
  PRECIS_CHECK(store.write({{{Table::kPayload, "new", added}}, {}}, Durability::kFsync).ok());
  for (std::size_t i = 0; i < disk.rows.size(); ++i) {
    removal.deletes.push_back({Table::kPayload, std::to_string(i)});
  }
  PRECIS_CHECK(store.write(removal, Durability::kFsync).ok());
  PRECIS_CHECK(*store.read("new") == added);
  return true;
}

Inputs store_seeds(std::uint64_t seed) {
  testing::RandomMessages random(seed);
  FaultyDrive drive;
  const auto files = ExtentFiles::open(drive.folder(), {}, kFileBytes);
  const std::vector<std::vector<std::byte>> values = {random.bytes(100), {}, random.bytes(30)};
  const auto extents = (*files)->append(std::vector<Bytes>(values.begin(), values.end()));
  std::vector<ExtentRow> rows;
  for (const Extent& extent : *extents) rows.push_back(encode_extent(extent));
  Disk disk{{rows.begin(), rows.end()}, std::vector<std::byte>(drive.size(kFileName))};
  PRECIS_CHECK((*drive.folder()->open(kFileName))->read_at(0, disk.file).ok());
  Inputs inputs{write_disk(disk)};
  disk.rows.resize(1);
  inputs.push_back(write_disk(disk));
  return inputs;
}

constexpr Target kTargets[] = {
    {"decode_extent_row", run_extent_row, extent_row_seeds},
    {"open_store", run_open_store, store_seeds},
};

}  // namespace

std::span<const Target> store_targets() { return kTargets; }

}  // namespace precis::fuzz
