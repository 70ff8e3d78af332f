// A store on disk whose drive and rows outlive it, with helpers for tests.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cachesvc/store/extent_store.h"
#include "tests/unit/store/faulty_folder.h"
#include "tests/unit/store/forwarding_store.h"
#include "tests/unit/store/memory_rows.h"
#include "tests/unit/store/test_dir.h"

namespace precis::testing {

using Value = std::vector<std::byte>;

// The value of an environment variable, or `otherwise`.
inline std::uint64_t test_number(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

inline constexpr std::uint64_t kFileBytes = 64 << 10, kWriteBehindBytes = 128 << 10;
inline constexpr std::chrono::milliseconds kTidyAtOnce{0};

struct Machine {
  FaultyDrive drive;
  MemoryRows rows;  // outlives the store that uses it
  std::chrono::milliseconds tidy_after = kTidyAtOnce;
  Result<std::unique_ptr<Store>> try_open() {
    return open_extent_store(std::make_unique<ForwardingRows>(rows), drive.folder(),
                             {kFileBytes, 0.5, kWriteBehindBytes, tidy_after});
  }
  std::unique_ptr<Store> open() {
    auto store = try_open();
    INFO(store.status().to_string());
    REQUIRE(store.ok());
    return std::move(store).value();
  }
  void lose_power(std::mt19937_64& rng) {
    drive.lose_power(rng);
    rows.lose_power(rng() % (rows.unsynced() + 1));
  }
};

inline Status put(Store& store, const std::string& key, const Value& value,
                  Durability durability = Durability::kWal) {
  return store.write({{{Table::kPayload, key, value}}, {}}, durability);
}
inline std::shared_ptr<const Value> shared_noise(std::uint64_t seed, std::size_t size) {
  return std::make_shared<const Value>(noise(seed, size));
}
inline Status stage_and_put(Store& store, const std::string& key,
                            const std::shared_ptr<const Value>& value,
                            Durability durability = Durability::kMemory) {
  const auto staged = store.stage({*value, value});
  return store.write({{{Table::kPayload, key, *value, staged}}, {}}, durability);
}
inline Status erase(Store& store, const std::string& key,
                    Durability durability = Durability::kWal) {
  return store.write({{}, {{Table::kPayload, key}}}, durability);
}

}  // namespace precis::testing
