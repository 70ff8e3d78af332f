// ./dev bench store: rates of the store on disk. The ceiling is the disk itself, in the same folder
// and run: a plain file that is written (wal), written and synced as often (fsync), and read past
// the page cache.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "cachesvc/store/extent_store.h"
#include "tests/bench/plain_file.h"
#include "tests/bench/row.h"

namespace precis::bench {
namespace {

constexpr std::size_t kLayerBytes = 4u << 20;  // 5K tokens of an 8B model at 20%
constexpr std::size_t kLayers = 32;
constexpr std::size_t kSegmentBytes = kLayers * kLayerBytes;

// Runs `body`, which moves `bytes`; returns GB/s.
template <typename Body>
Result<double> timed(std::size_t bytes, const Body& body) {
  const auto began = std::chrono::steady_clock::now();
  PRECIS_TRY(body());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return static_cast<double>(bytes) / took.count() * 1e-9;
}

// Writes segments one after another, as commits do.
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
      PRECIS_TRY(store.read_into(fmt::format("{}.{}", s, l), into));
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
};

Status measure(const Options& options) {
  const std::size_t segments = std::max<std::size_t>((options.mib << 20) / kSegmentBytes, 1);
  const std::size_t bytes = segments * kSegmentBytes;
  PRECIS_ASSIGN(const auto store, open_disk_store(options.dir + "/store"));
  ColdPool pool(std::size_t{256} << 20);
  const FileBlocks layer(kLayerBytes);
  const MutableBytes into = layer.bytes();
  PlainFile plain(options.dir + "/plain");

  Row rows[] = {{"store_put_wal", {{"bytes", bytes}}, "GB/s", "plain write", {}},
                {"store_put_fsync", {{"bytes", bytes}}, "GB/s", "write + fdatasync", {}},
                {"store_read_cold", {{"bytes", bytes}}, "GB/s", "direct read", {}}};
  std::size_t next = 0;
  for (std::size_t run = 0; run <= options.runs; ++run) {  // the first run warms up
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (terminal)
      fmt::print(stderr, "\r\033[K{} MiB, run {} of {}", bytes >> 20, run, options.runs);
    double rates[6];
    for (const bool sync : {false, true}) {
      const std::size_t first = next, at = sync ? 2 : 0;
      plain.remove();
      ::sync();  // so that neither measurement pays for earlier writes
      PRECIS_ASSIGN(rates[at], timed(bytes, [&] {
                      return plain.write(pool, segments, kLayers, kLayerBytes, sync);
                    }));
      ::sync();
      PRECIS_ASSIGN(rates[at + 1], timed(bytes, [&] {
                      return write_segments(*store, pool, segments, next,
                                            sync ? Durability::kFsync : Durability::kWal);
                    }));
      ::sync();
      if (sync) {
        PRECIS_ASSIGN(rates[4], timed(bytes, [&] {
                        return plain.read_direct({&into, 1}, 0, bytes);
                      }));
        PRECIS_ASSIGN(rates[5],
                      timed(bytes, [&] { return read_segments(*store, into, first, segments); }));
      }
      PRECIS_TRY(remove_segments(*store, first, next));
    }
    for (std::size_t i = 0; run > 0 && i < 3; ++i) {
      rows[i].samples.add(rates[2 * i + 1], rates[2 * i]);
    }
    if (terminal) fmt::print(stderr, "\r\033[K");
  }
  for (const Row& row : rows) print(row);
  return {};
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  using namespace precis;
  CLI::App app("Measures writes and reads of the store on disk, beside the disk itself.",
               "bench store");
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
  CLI11_PARSE(app, argc, argv);
  options.dir = fmt::format("{}/precis-bench-store-{}", dir, ::getpid());
  std::filesystem::create_directory(options.dir);
  const Status measured = bench::measure(options);
  std::error_code ignored;
  std::filesystem::remove_all(options.dir, ignored);
  if (!measured.ok()) fmt::print(stderr, "bench store: {}\n", measured.to_string());
  return measured.ok() ? 0 : 1;
}
