// The contract of PayloadStore (cachesvc/store/payload_store.h), tested with each implementation.
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <map>
#include <thread>

#include "cachesvc/store/extent_store.h"
#include "tests/unit/store/memory_payload.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::MemoryPayload;
using precis::testing::MemoryValues;
using precis::testing::noise;
using precis::testing::TestDir;
using Value = std::vector<std::byte>;
using Pinning = PayloadStore::Pinning;

namespace {

constexpr std::uint64_t kFileBytes = 64 << 10;

// Rows that name values, in memory.
struct Rows final : PayloadOwner {
  void freed() override { ++told; }
  Status harden_rows() override {
    ++hardened;
    return hardens ? Status() : Status::unavailable("held");
  }
  Named named_in(std::uint32_t file) override {
    Named found;
    for (const auto& [name, place] : places) {
      if (place.file == file) found.emplace_back(name, place);
    }
    return found;
  }
  Status move(const std::string& name, const Extent& from, const Extent& to) override {
    if (!places.contains(name) || places[name] != from) return Status::not_found(name);
    places[name] = to;
    return {};
  }
  std::map<std::string, Extent> places;
  bool hardens = true;
  int hardened = 0;
  std::atomic<int> told = 0;
};

// A payload store of one kind in its own directory, with its owner.
struct Subject {
  explicit Subject(std::string name) : kind(std::move(name)) { open(); }
  void open() {
    store.reset();
    std::vector<Extent> live;
    for (const auto& [name, place] : rows.places) live.push_back(place);
    if (kind == "memory") {
      store = std::make_unique<MemoryPayload>(memory, live);
    } else {
      auto folder = open_posix_folder(dir.path());
      REQUIRE(folder.ok());
      auto opened = open_extent_payload(std::move(folder).value(), live, {kFileBytes, 0.5});
      REQUIRE(opened.ok());
      store = std::move(opened).value();
    }
    store->attach(rows);
  }
  std::shared_ptr<StagedValue> stage(const Value& value) {
    const auto shared = std::make_shared<const Value>(value);
    return store->stage({*shared, shared});
  }
  // Stores a value as a commit does.
  void put(const std::string& name, const Value& value) {
    const auto staged = stage(value);
    REQUIRE(staged->wait().ok());
    rows.places[name] = staged->place();
    staged->keep();
  }
  void erase(const std::string& name) {
    const Extent place = rows.places.at(name);
    rows.places.erase(name);
    store->free({&place, 1});
  }
  Value read(const std::string& name) {
    auto value = store->pin(rows.places.at(name), Pinning::kRead)->read();
    INFO(value.status().to_string());
    REQUIRE(value.ok());
    return std::move(value).value();
  }
  void reclaim(bool tight = false) {
    while (store->reclaim(tight, {})) {
    }
  }

  const std::string kind;
  TestDir dir;
  MemoryValues memory;
  Rows rows;
  std::unique_ptr<PayloadStore> store;
};

std::string each_kind() { return GENERATE(as<std::string>{}, "memory", "extents"); }

}  // namespace

TEST_CASE("a staged value is read at its place, of any size", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, GENERATE(0u, 1u, 4096u, 1'000'003u));
  const auto staged = subject.stage(value);
  REQUIRE(staged->wait().ok());
  CHECK(staged->over());
  CHECK_FALSE(staged->has_failed());
  CHECK_FALSE(staged->unwritten());
  CHECK(staged->size_bytes() == value.size());
  CHECK(staged->place().size == value.size());
  const auto pin = subject.store->pin(staged->place(), Pinning::kRead);
  CHECK(*pin->read() == value);
  Value into(value.size());
  CHECK(pin->read_into(into).ok());
  CHECK(into == value);
  CHECK(subject.store->sync().ok());
  CHECK(subject.store->check().ok());
}

TEST_CASE("reading into a buffer of another size is kCorruption and leaves it alone",
          "[unit][store]") {
  Subject subject(each_kind());
  subject.put("a", noise(1, 5000));
  const auto pin = subject.store->pin(subject.rows.places["a"], Pinning::kRead);
  Value into(GENERATE(0u, 4999u, 5001u), std::byte{7});
  const Value before = into;
  CHECK(pin->read_into(into).code() == StatusCode::kCorruption);
  CHECK(into == before);
}

TEST_CASE("a place where no value is, is kCorruption, whatever size it names", "[unit][store]") {
  Subject subject(each_kind());
  const Extent nowhere{77, 4096, GENERATE(std::uint64_t{10}, std::uint64_t{1} << 47)};
  CHECK(subject.store->pin(nowhere, Pinning::kRead)->read().status().code() ==
        StatusCode::kCorruption);
}

TEST_CASE("a staged value counts until its handle ends, and if it is kept until it is freed",
          "[unit][store]") {
  Subject subject(each_kind());
  // The thread that wrote a value may hold it a moment longer than wait() takes.
  const auto none_live = [&] {
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (subject.store->stats().live_bytes != 0 && std::chrono::steady_clock::now() < last) {
      std::this_thread::yield();
    }
    return subject.store->stats().live_bytes == 0;
  };
  {
    const auto staged = subject.stage(noise(1, 4096));
    REQUIRE(staged->wait().ok());
    CHECK(subject.store->stats().live_bytes == 4096);
  }
  CHECK(none_live());
  subject.put("a", noise(1, 4096));
  CHECK(subject.store->stats().live_bytes == 4096);
  subject.erase("a");
  CHECK(subject.store->stats().live_bytes == 0);
}

TEST_CASE("a pinned value is read after it was freed and space was reclaimed", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 10'000);
  subject.put("a", value);
  const auto pin =
      subject.store->pin(subject.rows.places["a"], GENERATE(Pinning::kRead, Pinning::kKeep));
  subject.erase("a");
  subject.reclaim();
  CHECK(*pin->read() == value);
}

TEST_CASE("what waits for staged values runs after them, never within the call", "[unit][store]") {
  Subject subject(each_kind());
  const auto staged = subject.stage(noise(1, 100'000));
  std::promise<bool> over;
  const auto here = std::this_thread::get_id();
  const auto owner = std::make_shared<int>();
  subject.store->then([&] { over.set_value(staged->over() && std::this_thread::get_id() != here); },
                      owner);
  CHECK(over.get_future().get());
}

TEST_CASE("what waits for staged values is skipped once its owner is gone", "[unit][store]") {
  Subject subject(each_kind());
  bool ran = false;
  subject.store->then([&] { ran = true; }, std::weak_ptr<int>());
  std::promise<void> later;
  const auto owner = std::make_shared<int>();
  subject.store->then([&] { later.set_value(); }, owner);
  later.get_future().wait();
  CHECK_FALSE(ran);
}

TEST_CASE("only values that rows name at opening count, and they are read", "[unit][store]") {
  Subject subject(each_kind());
  std::map<std::string, Value> values;
  for (unsigned i = 0; i < 30; ++i) {
    values[std::to_string(i)] = noise(i, 8192);
    subject.put(std::to_string(i), values[std::to_string(i)]);
  }
  REQUIRE(subject.store->sync().ok());
  for (unsigned i = 0; i < 25; ++i) {  // as if a crash had come before their rows
    subject.rows.places.erase(std::to_string(i));
    values.erase(std::to_string(i));
  }
  subject.open();
  CHECK(subject.store->stats().live_bytes == 5 * 8192);
  CHECK(subject.store->stats().missing_bytes == 0);
  subject.reclaim();
  CHECK(subject.store->stats().disk_bytes <= 2 * kFileBytes);
  for (const auto& [name, value] : values) CHECK(subject.read(name) == value);
}

TEST_CASE("space is reclaimed only once no crash brings back a row that names it",
          "[unit][store]") {
  Subject subject(each_kind());
  const bool tight = GENERATE(false, true);
  for (unsigned i = 0; i < 30; ++i) subject.put(std::to_string(i), noise(i, 8192));
  const std::uint64_t full = subject.store->stats().disk_bytes;
  for (unsigned i = 1; i < 30; ++i) subject.erase(std::to_string(i));
  subject.rows.hardens = false;
  subject.reclaim(tight);
  CHECK(subject.store->stats().disk_bytes == full);
  subject.rows.hardens = true;
  subject.reclaim(tight);
  CHECK(subject.store->stats().disk_bytes <= 2 * kFileBytes);
  CHECK(subject.read("0") == noise(0, 8192));
}

TEST_CASE("threads stage, read and free values of one payload store", "[unit][store]") {
  Subject subject(each_kind());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 50; ++i) {
        const Value value = noise(100 * t + i, 5000);
        const auto staged = subject.stage(value);
        if (!staged->wait().ok()) ++wrong;
        const auto read = subject.store->pin(staged->place(), Pinning::kRead)->read();
        if (!read.ok() || *read != value) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  subject.store->settle();  // the store's thread may hold the last value a moment longer
  CHECK(subject.store->stats().live_bytes == 0);
}

TEST_CASE("what is held stays readable until it is released, or until space is short",
          "[unit][store]") {
  const bool tight = GENERATE(false, true);
  Subject subject("extents");
  const Value value = noise(1, 1'000'000);
  subject.put("a", value);
  subject.put("b", noise(2, 5000));  // in another file
  const Extent place = subject.rows.places.at("a");
  auto hold = subject.store->hold();
  REQUIRE(hold);
  CHECK_FALSE(subject.store->hold());
  subject.erase("a");
  subject.reclaim();
  CHECK(*subject.store->pin(place, Pinning::kRead)->read() == value);
  CHECK(hold->check().ok());
  if (tight) {
    subject.reclaim(true);
    CHECK(hold->check().code() == StatusCode::kOutOfSpace);
  } else {
    hold->release(place.file);
    subject.reclaim();
    CHECK(hold->check().ok());
  }
  CHECK(subject.store->stats().disk_bytes < value.size());
  hold.reset();
  CHECK(subject.store->hold());
}
