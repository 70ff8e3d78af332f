// ./dev bench store: what the store on disk takes and gives, beside the disk itself in the same
// folder and the same run: a plain file written as fast (wal), written and synced as often (fsync),
// and read around the machine's cache.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "cachesvc/store/extent_store.h"
#include "tests/bench/row.h"

namespace precis::bench {
namespace {

constexpr std::size_t kLayerBytes = 4u << 20;  // 5K tokens of an 8B model at 20%
constexpr std::size_t kLayers = 32;
constexpr std::size_t kSegmentBytes = kLayers * kLayerBytes;

// Runs `body`, which moves `bytes`; GB/s.
template <typename Body>
Result<double> timed(std::size_t bytes, const Body& body) {
  const auto began = std::chrono::steady_clock::now();
  PRECIS_TRY(body());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return static_cast<double>(bytes) / took.count() * 1e-9;
}

Status failed(const char* what) {
  return Status::unavailable(std::string(what) + ": " + std::strerror(errno));
}

// A plain file in the same folder, gone when destroyed.
class PlainFile {
 public:
  explicit PlainFile(std::string path) : path_(std::move(path)) {}
  ~PlainFile() { remove(); }
  void remove() { ::unlink(path_.c_str()); }
  // A new file of `segments` of the pool's bytes, synced after each if `sync`. The disk begins with
  // each piece at once, for else it stands idle until somebody waits for it.
  Status write(ColdPool& pool, std::size_t segments, bool sync) {
    const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return failed("creating the plain file");
    Status status;
    for (std::size_t s = 0; s < segments && status.ok(); ++s) {
      for (std::size_t l = 0; l < kLayers && status.ok(); ++l) {
        const MutableBytes piece = pool.next(kLayerBytes);
        const ssize_t done = ::write(fd, piece.data(), piece.size());
        if (done != static_cast<ssize_t>(piece.size())) status = failed("writing the plain file");
        (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
      }
      if (sync && status.ok() && ::fdatasync(fd) != 0) status = failed("syncing the plain file");
    }
    ::close(fd);
    return status;
  }
  // All of it, a layer at a time.
  Status read_direct(MutableBytes into) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) return failed("opening the plain file around the cache");
    ssize_t done;
    while ((done = ::read(fd, into.data(), into.size())) > 0) {
    }
    ::close(fd);
    return done == 0 ? Status() : failed("reading the plain file");
  }

 private:
  const std::string path_;
};

// Segments written one after the other, as a commit does.
Status write_segments(Store& store, ColdPool& pool, std::size_t segments, std::size_t& next,
                      Durability durability) {
  for (std::size_t s = 0; s < segments; ++s, ++next) {
    StoreBatch batch;
    for (std::size_t l = 0; l < kLayers; ++l) {
      batch.puts.push_back(
          {Table::kPayload, fmt::format("{}.{}", next, l), Bytes(pool.next(kLayerBytes))});
    }
    PRECIS_TRY(store.write(batch, durability));
  }
  return {};
}

Status read_segments(Store& store, MutableBytes into, std::size_t first, std::size_t segments) {
  for (std::size_t s = first; s < first + segments; ++s) {
    for (std::size_t l = 0; l < kLayers; ++l) {
      PRECIS_TRY(store.read_into(Table::kPayload, fmt::format("{}.{}", s, l), into));
    }
  }
  return {};
}

Status remove_segments(Store& store, std::size_t first, std::size_t last) {
  StoreBatch batch;
  for (std::size_t s = first; s < last; ++s) {
    for (std::size_t l = 0; l < kLayers; ++l) {
      batch.deletes.push_back({Table::kPayload, fmt::format("{}.{}", s, l)});
    }
  }
  return store.write(batch, Durability::kWal);
}

struct Options {
  std::string dir;
  std::size_t mib = 1024, runs = 5;
  std::string json;
};

Result<std::vector<Row>> measure(const Options& options) {
  const std::size_t segments = std::max<std::size_t>((options.mib << 20) / kSegmentBytes, 1);
  const std::size_t bytes = segments * kSegmentBytes;
  PRECIS_ASSIGN(const auto store, open_disk_store(options.dir + "/store"));
  ColdPool pool(std::size_t{256} << 20);
  const MutableBytes into(static_cast<std::byte*>(std::aligned_alloc(kFileBlockBytes, kLayerBytes)),
                          kLayerBytes);
  const std::unique_ptr<std::byte, decltype(&std::free)> owner(into.data(), &std::free);
  PlainFile plain(options.dir + "/plain");

  std::vector<double> ours[3], disks[3];  // wal, fsync, cold read
  std::size_t next = 0;
  for (std::size_t run = 0; run <= options.runs; ++run) {  // the first warms up
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (terminal)
      fmt::print(stderr, "\r\033[K{} MiB, run {} of {}", bytes >> 20, run, options.runs);
    double rates[6];
    for (const bool sync : {false, true}) {
      const std::size_t first = next, at = sync ? 2 : 0;
      plain.remove();
      ::sync();  // neither pays for what the other left
      PRECIS_ASSIGN(rates[at], timed(bytes, [&] { return plain.write(pool, segments, sync); }));
      ::sync();
      PRECIS_ASSIGN(rates[at + 1], timed(bytes, [&] {
                      return write_segments(*store, pool, segments, next,
                                            sync ? Durability::kFsync : Durability::kWal);
                    }));
      ::sync();
      if (sync) {
        PRECIS_ASSIGN(rates[4], timed(bytes, [&] { return plain.read_direct(into); }));
        PRECIS_ASSIGN(rates[5],
                      timed(bytes, [&] { return read_segments(*store, into, first, segments); }));
      }
      PRECIS_TRY(remove_segments(*store, first, next));
    }
    for (std::size_t i = 0; run > 0 && i < 3; ++i) {
      disks[i].push_back(rates[2 * i]);
      ours[i].push_back(rates[2 * i + 1]);
    }
    if (terminal) fmt::print(stderr, "\r\033[K");
  }
  const char* const names[] = {"put_wal", "put_fsync", "read_cold"};
  const char* const ceilings[] = {"plain write", "write + fdatasync", "direct read"};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < 3; ++i) {
    rows.push_back(
        {names[i], "disk", bytes, summarize(ours[i]), summarize(disks[i]), ceilings[i], 0.75});
  }
  return rows;
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  using namespace precis;
  CLI::App app("What the store on disk takes and gives, beside the disk itself.", "bench store");
  bench::Options options;
  std::string dir = ".";
  app.add_option("--dir", dir,
                 "A folder on the disk to measure; a new one is made in it and removed")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--mib", options.mib, "MiB a run")
      ->check(CLI::Range(128, 65536))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Runs per figure; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json, "Writes the rows to this file");
  CLI11_PARSE(app, argc, argv);
  options.dir = fmt::format("{}/precis-bench-store-{}", dir, ::getpid());
  std::filesystem::create_directory(options.dir);
  const auto rows = bench::measure(options);
  std::error_code ignored;
  std::filesystem::remove_all(options.dir, ignored);
  if (!rows.ok()) {
    fmt::print(stderr, "bench store: {}\n", rows.status().to_string());
    return 1;
  }
  bench::print_table(*rows);
  if (options.json.empty()) return 0;
  const Status written = bench::write_json(*rows, options.json);
  if (!written.ok()) fmt::print(stderr, "bench store: {}\n", written.to_string());
  return written.ok() ? 0 : 1;
}
