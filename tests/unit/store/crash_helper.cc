// Writes batches to a store until it is killed: batch i has row i and payload i under the key i.
// Prints each number after the store has acknowledged it.
//   store_crash_helper DIR memory|wal|fsync|hardened
#include <cstdio>
#include <cstring>
#include <string>

#include "cachesvc/store/extent_store.h"

using namespace precis;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool hardened = std::strcmp(argv[2], "hardened") == 0;
  const auto durability =
      hardened ? Result<Durability>(Durability::kMemory) : parse_durability(argv[2]);
  if (!durability.ok()) return 2;
  auto store = open_disk_store(argv[1], {.tidy_after = {}});
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().to_string().c_str());
    return 1;
  }
  for (unsigned i = 0;; ++i) {
    const std::string key = std::to_string(i);
    const std::vector<std::byte> row(20, static_cast<std::byte>(i));
    const std::vector<std::byte> payload(200'000, static_cast<std::byte>(i));
    const StoreBatch batch{{{Table::kSegments, key, row}, {Table::kPayload, key, payload}}, {}};
    Status status = (*store)->write(batch, *durability);
    if (status.ok() && hardened) status = (*store)->harden();
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.to_string().c_str());
      return 1;
    }
    std::printf("%u\n", i);
    std::fflush(stdout);
  }
}
