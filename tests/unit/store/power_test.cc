// The power fails at random moments. Changes acknowledged at fsync remain; every other change is
// either complete or known to be missing. PRECIS_TEST_SEED is the seed of the first round, and each
// further round adds one. PRECIS_TEST_ROUNDS is the number of rounds, so a failed round can be
// repeated alone.
#include <cstring>
#include <map>
#include <optional>

#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/store/rocksdb_store.h"
#include "tests/unit/store/forgetful_disk.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Rows in RocksDB and payload, both on disks that lose unsynced data.
struct WholeMachine {
  static constexpr int kRounds = 25;
  TestDir dir;  // RocksDB's own files are in `rows`
  ForgetfulDisk rows;
  FaultyDrive drive;
  int life = 0;  // life of the machine, for its boot id

  std::unique_ptr<Store> open() {
    auto opened = open_rocksdb_store(dir.path(), {rows.env()});
    INFO(opened.status().to_string());
    REQUIRE(opened.ok());
    auto numbered = number_rows(std::move(opened).value(), dir.path() + "/acknowledged",
                                {std::to_string(life++)});
    INFO(numbered.status().to_string());
    REQUIRE(numbered.ok());
    auto store = open_extent_store(std::move(numbered).value(), drive.folder(),
                                   {kFileBytes, 0.5, kWriteBehindBytes, kTidyAtOnce});
    INFO(store.status().to_string());
    REQUIRE(store.ok());
    return std::move(store).value();
  }
  void fail_some_time(std::mt19937_64& rng) {
    drive.fail_after(rng() % 600, Status::unavailable("faulty drive: EIO"));
    rows.fail_after(rng() % 600);
  }
  void lose_power(std::mt19937_64& rng) {
    drive.lose_power(rng);
    rows.lose_power(rng);
  }
  // RocksDB may have logged a change that it then failed to sync.
  static constexpr bool kFailedMayStay = true;
};

// The same with rows in memory, which is many times faster.
struct SmallMachine : Machine {
  static constexpr int kRounds = 150;
  void fail_some_time(std::mt19937_64& rng) {
    drive.fail_after(rng() % 400, Status::unavailable("faulty drive: EIO"));
  }
  static constexpr bool kFailedMayStay = false;
};

// A value with its key and a number, followed by bytes that depend on both, so that a reader
// detects a torn value.
Value told(unsigned key, unsigned number, std::size_t size) {
  Value value = noise(key * 1'000'003ull + number, size);
  std::memcpy(value.data(), &key, 4);
  std::memcpy(value.data() + 4, &number, 4);
  return value;
}

// The number, if every byte is as it was written.
std::optional<unsigned> number_in(unsigned key, const Value& value) {
  unsigned of = 0, number = 0;
  if (value.size() < 8) return std::nullopt;
  std::memcpy(&of, value.data(), 4);
  std::memcpy(&number, value.data() + 4, 4);
  if (of != key || value != told(key, number, value.size())) return std::nullopt;
  return number;
}

// For one key: the number of the last synced change (none: removed), and the change since then,
// which may remain instead.
struct Known {
  std::optional<unsigned> synced;
  std::optional<std::optional<unsigned>> since;
  bool doubtful = false;  // a later change failed, but may be present
  bool settled() const { return !since && !doubtful; }
};

template <typename AnyMachine>
class Lives {
 public:
  explicit Lives(std::uint64_t seed) : rng_(seed) {}

  void live_and_die() {
    {
      const auto store = machine_.open();
      machine_.fail_some_time(rng_);
      for (int i = 0; i < 120; ++i) change(*store);
      machine_.lose_power(rng_);
    }
    const auto store = machine_.open();
    REQUIRE_FALSE(store->doubt());  // data lost in a crash is no damage
    look(*store);
  }

 private:
  void change(Store& store) {
    const auto key = static_cast<unsigned>(rng_() % 12);
    const auto how = static_cast<Durability>(rng_() % 3);
    const bool removes = rng_() % 4 == 0;
    const std::optional<unsigned> next = removes ? std::nullopt : std::optional(++number_);
    const std::string name = std::to_string(key);
    const auto value = std::make_shared<const Value>(told(key, number_, 8 + rng_() % 20'000));
    const Status status = removes           ? erase(store, name, how)
                          : rng_() % 2 == 0 ? put(store, name, *value, how)
                                            : stage_and_put(store, name, value, how);
    if (!status.ok()) {
      known_[key].doubtful |= AnyMachine::kFailedMayStay;
      return;
    }
    known_[key].since = next;
    if (how == Durability::kFsync) known_[key] = {next, std::nullopt, false};
    if (rng_() % 30 != 0 || !store.harden().ok()) return;
    for (auto& [each, state] : known_) {
      if (!state.doubtful) state = {state.since.value_or(state.synced), std::nullopt, false};
    }
  }

  void look(Store& store) {
    for (auto& [key, state] : known_) {
      const auto value = store.read(std::to_string(key));
      const StatusCode code = value.status().code();
      const auto left = value.ok() ? number_in(key, *value) : std::nullopt;
      const bool synced_left = state.synced ? left == state.synced : code == StatusCode::kNotFound;
      // A torn, missing or different value is allowed only if something was written since the sync.
      CAPTURE(key, status_code_name(code), state.synced.value_or(0), left.value_or(0));
      if (state.settled()) REQUIRE(synced_left);
      state = {left, std::nullopt, false};
      if (!left) {  // continue from a known state
        REQUIRE(erase(store, std::to_string(key), Durability::kFsync).ok());
      }
    }
    REQUIRE(store.harden().ok());
  }

  AnyMachine machine_;
  std::mt19937_64 rng_;
  std::map<unsigned, Known> known_;
  unsigned number_ = 0;
};

}  // namespace

TEMPLATE_TEST_CASE("when the power goes at any moment, what was synced is there bit for bit",
                   "[unit][store][power]", SmallMachine, WholeMachine) {
  const std::uint64_t first = test_number("PRECIS_TEST_SEED", std::random_device()());
  const std::uint64_t rounds = test_number("PRECIS_TEST_ROUNDS", TestType::kRounds);
  for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
    INFO("PRECIS_TEST_SEED=" << seed << " PRECIS_TEST_ROUNDS=1");
    Lives<TestType> lives(seed);
    for (int life = 0; life < 3; ++life) lives.live_and_die();
  }
}
