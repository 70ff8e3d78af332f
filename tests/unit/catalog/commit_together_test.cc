// Commits that arrive while another is written share the next write and its sync. The result of
// each commit is the same as if they had come one after another.
#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/forwarding_store.h"

using namespace precis;
using namespace precis::testing;

namespace {

using Keys = std::set<std::string>;  // of segment rows

// Records writes at kWal or better, and blocks in them while it is held.
class HeldStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    standing_ = 0;
    changed_.notify_all();
  }
  // Makes batches that put this segment fail.
  void refuse(const SegmentId& id) { refused_ = segment_key(id); }
  void wait_for_standing() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return standing_ > 0; });
  }
  // The keys of each write, in order.
  std::vector<Keys> written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }

  Status write(const StoreBatch& batch, Durability durability) override {
    if (durability == Durability::kMemory) return ForwardingStore::write(batch, durability);
    Keys segments;
    for (const auto& put : batch.puts) {
      if (put.table == Table::kSegments) segments.insert(put.key);
    }
    {
      std::unique_lock lock(mutex_);
      written_.push_back(segments);
      ++standing_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_; });
    }
    if (refused_ && segments.contains(*refused_)) return Status::out_of_space("held store: full");
    return ForwardingStore::write(batch, durability);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool held_ = false;
  int standing_ = 0;  // writes started since the last hold()
  std::vector<Keys> written_;
  std::optional<std::string> refused_;  // set before threads start
};

// A catalog that is writing one change, and commits that arrive during the write.
struct Crowd {
  CatalogFixture f;
  HeldStore store{f.store};
  std::unique_ptr<Catalog> catalog = open();
  std::future<Status> first;
  std::vector<std::future<Status>> others;

  ~Crowd() { store.hold(false); }  // before the futures wait for blocked writes

  std::unique_ptr<Catalog> open() {
    auto opened = Catalog::open(store, f.clock);
    REQUIRE(opened.ok());
    return std::move(opened).value();
  }
  std::future<Status> begin(std::function<Status()> change) {
    return std::async(std::launch::async, std::move(change));
  }
  void begin_first(std::function<Status()> change) {
    store.hold(true);
    first = begin(std::move(change));
    store.wait_for_standing();
  }
  void begin_first(const NewSegment& segment) {
    begin_first([&] { return commit(segment, Durability::kFsync); });
  }
  Status commit(const NewSegment& segment, Durability durability) {
    return catalog->commit(segment.row, segment.payload(), durability);
  }
  // Returns once the commit waits for the change that is being written.
  void begin_next(const NewSegment& segment) {
    others.push_back(begin([this, &segment] { return commit(segment, Durability::kFsync); }));
    const auto& impl = dynamic_cast<const CatalogImpl&>(*catalog);
    while (impl.commits_waiting() < others.size()) std::this_thread::yield();
  }
  // The status of the first change, then of the others in the order of their arrival.
  std::vector<StatusCode> release() {
    store.hold(false);
    std::vector<StatusCode> codes{first.get().code()};
    for (auto& other : others) codes.push_back(other.get().code());
    return codes;
  }
  bool stored(const NewSegment& segment) const {
    return catalog->segment(f.tenant, segment.row.id).ok();
  }
};

// Segments at the root, unrelated to each other.
std::vector<NewSegment> unrelated(const CatalogFixture& f, TokenId count) {
  std::vector<NewSegment> segments;
  for (TokenId i = 0; i < count; ++i) segments.push_back(f.segment(tokens(6, 1000 * (i + 1))));
  return segments;
}

bool all_ok(const std::vector<StatusCode>& codes) {
  return std::ranges::all_of(codes, [](StatusCode code) { return code == StatusCode::kOk; });
}

}  // namespace

TEST_CASE("commits that come while another is synced share the next sync", "[unit][catalog]") {
  Crowd crowd;
  const auto segments = unrelated(crowd.f, 8);
  crowd.begin_first(segments[0]);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    crowd.begin_next(segments[i]);
    CHECK_FALSE(crowd.stored(segments[i]));
  }
  CHECK_FALSE(crowd.stored(segments[0]));
  CHECK(all_ok(crowd.release()));
  const auto written = crowd.store.written();
  REQUIRE(written.size() == 2);
  CHECK(written[0].size() == 1);
  CHECK(written[1].size() == 7);
  // Simulates a power failure.
  crowd.catalog.reset();
  crowd.f.catalog.reset();
  crowd.f.store.lose_power(0);
  crowd.f.reopen();
  for (const NewSegment& segment : segments) {
    CHECK(crowd.f.matched(segment.path) == 6);
    CHECK(crowd.f.has_payload(segment));
  }
}

TEST_CASE("of commits that share a write one that the store refuses fails alone",
          "[unit][catalog]") {
  Crowd crowd;
  const auto segments = unrelated(crowd.f, 5);
  crowd.store.refuse(segments[3].row.id);
  crowd.begin_first(segments[0]);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    crowd.begin_next(segments[i]);
  }
  const auto codes = crowd.release();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    CAPTURE(i);
    CHECK(codes[i] == (i == 3 ? StatusCode::kOutOfSpace : StatusCode::kOk));
    CHECK(crowd.stored(segments[i]) == (i != 3));
  }
  crowd.catalog.reset();
  crowd.f.store.lose_power(0);
  crowd.f.reopen();
  CHECK(crowd.f.catalog->totals().segments == 4);
}

TEST_CASE("of commits that wait together one that is wrong fails alone, and is not written",
          "[unit][catalog]") {
  Crowd crowd;
  auto segments = unrelated(crowd.f, 4);
  segments[2].layers[0].push_back(std::byte{1});
  crowd.begin_first(segments[0]);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    crowd.begin_next(segments[i]);
  }
  const auto codes = crowd.release();
  CHECK(codes[1] == StatusCode::kOk);
  CHECK(codes[2] == StatusCode::kInvalidArgument);
  CHECK(codes[3] == StatusCode::kOk);
  CHECK(crowd.store.written().size() == 2);
}

TEST_CASE("a segment that waits with its parent is written after it", "[unit][catalog]") {
  Crowd crowd;
  const auto other = crowd.f.segment(tokens(6, 5000));
  const auto a = crowd.f.segment(tokens(6)), b = crowd.f.segment(tokens(9), &a),
             c = crowd.f.segment(tokens(12), &b);
  crowd.begin_first(other);
  for (const NewSegment* each : {&a, &b, &c}) crowd.begin_next(*each);
  CHECK(all_ok(crowd.release()));
  const std::vector<Keys> expected = {{segment_key(other.row.id)},
                                      {segment_key(a.row.id)},
                                      {segment_key(b.row.id)},
                                      {segment_key(c.row.id)}};
  CHECK(crowd.store.written() == expected);
}

TEST_CASE("a segment that waits twice is stored once", "[unit][catalog]") {
  Crowd crowd;
  const auto segments = unrelated(crowd.f, 2);
  crowd.begin_first(segments[0]);
  crowd.begin_next(segments[0]);
  crowd.begin_next(segments[1]);
  crowd.begin_next(segments[1]);
  CHECK(all_ok(crowd.release()));
  CHECK(crowd.store.written().size() == 2);
  CHECK(crowd.catalog->totals().segments == 2);
  CHECK(models_of(*crowd.catalog, crowd.f.tenant)[0].segments == 2);
  crowd.catalog.reset();
  crowd.f.store.lose_power(0);
  crowd.f.reopen();
  CHECK(crowd.f.has_payload(segments[1]));
}

TEST_CASE("a commit and the removal of its parent come one after the other", "[unit][catalog]") {
  Crowd crowd;
  const NewSegment parent = crowd.f.segment(tokens(6)), child = crowd.f.segment(tokens(9), &parent);
  REQUIRE(crowd.commit(parent, Durability::kFsync).ok());
  const auto remove = [&] {
    return crowd.catalog->remove(crowd.f.tenant, parent.row.id, false, nullptr).status();
  };
  SECTION("the removal first") {
    crowd.begin_first(remove);
    crowd.begin_next(child);
    CHECK(crowd.release() == std::vector{StatusCode::kOk, StatusCode::kNotFound});
    CHECK(crowd.catalog->totals().segments == 0);
  }
  SECTION("the commit first") {
    crowd.begin_first(child);
    crowd.others.push_back(crowd.begin(remove));
    CHECK(crowd.release() == std::vector{StatusCode::kOk, StatusCode::kConflict});
    CHECK(crowd.catalog->chain(crowd.f.tenant, child.row.id)->size() == 2);
  }
}

namespace {

// Fails at random. After a random number of writes it always fails, as after a power failure.
class DyingStore final : public ForwardingStore {
 public:
  DyingStore(Store& store, std::uint64_t seed) : ForwardingStore(store), random_(seed) {
    writes_left_ = 20 + random_() % 100;
  }
  bool is_dead() const {
    const std::lock_guard lock(mutex_);
    return writes_left_ == 0;
  }
  Status write(const StoreBatch& batch, Durability durability) override {
    PRECIS_TRY(attempt());
    std::this_thread::yield();  // Lets other commits arrive and wait.
    return ForwardingStore::write(batch, durability);
  }
  Status harden() override {
    PRECIS_TRY(attempt());
    return ForwardingStore::harden();
  }

 private:
  Status attempt() {
    const std::lock_guard lock(mutex_);
    if (writes_left_ == 0) return Status::unavailable("dying store: the power went");
    --writes_left_;
    return random_() % 8 == 0 ? Status::out_of_space("dying store: full") : Status();
  }
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::mt19937_64 random_;
  std::uint64_t writes_left_ = 0;
};

}  // namespace

TEST_CASE("when the power goes amid commits of many, what was synced is there with its parents",
          "[unit][catalog]") {
  const std::uint64_t first = std::random_device()();
  for (std::uint64_t seed = first; seed < first + 40; ++seed) {
    CAPTURE(seed);
    CatalogFixture f;
    DyingStore store(f.store, seed);
    auto opened = Catalog::open(store, f.clock);
    if (!opened.ok()) continue;  // The first writes failed.
    const std::unique_ptr<Catalog> catalog = std::move(opened).value();
    // Chains of four that share their first segment.
    std::vector<NewSegment> segments{f.segment(tokens(6))};
    segments.reserve(32);  // Segments have pointers to their parents.
    for (TokenId lane = 0; lane < 8; ++lane) {
      const NewSegment* parent = &segments[0];
      for (std::uint32_t length = 9; length <= 15; length += 3) {
        Tokens path = tokens(length);
        std::fill(path.begin() + 6, path.end(), 1000 + lane);
        segments.push_back(f.segment(path, parent));
        parent = &segments.back();
      }
    }
    std::mutex mutex;
    std::set<std::size_t> stored, synced;  // guarded by mutex
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(seed * 31 + t);
        while (!store.is_dead()) {
          const std::size_t which = random() % segments.size();
          const auto durability = static_cast<Durability>(random() % 3);
          catalog->count_hit(segments[random() % segments.size()].row.id);
          const Status status =
              catalog->commit(segments[which].row, segments[which].payload(), durability);
          // Removes some segments, so that later commits have something to write: a commit of a
          // stored segment writes nothing.
          if (random() % 16 == 0) {
            (void)catalog->remove(f.tenant, segments[8 * 3 - 2].row.id, true, nullptr);
          }
          const std::lock_guard lock(mutex);
          if (!status.ok()) continue;
          stored.insert(which);
          if (durability == Durability::kFsync) synced.insert(which);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Segments that the threads removed may be stored or not.
    for (std::size_t removed = 8 * 3 - 2; removed <= 8 * 3; ++removed) {
      stored.erase(removed);
      synced.erase(removed);
    }
    for (const std::size_t which : stored) {
      CHECK(catalog->segment(f.tenant, segments[which].row.id).ok());
    }
    std::mt19937_64 random(seed);
    f.catalog.reset();
    f.store.lose_power(random() % (f.store.unsynced() + 1));
    f.reopen();
    CHECK(f.catalog->totals().quarantined_segments == 0);  // Every stored segment has its parent.
    for (const std::size_t which : synced) {
      CAPTURE(which);
      CHECK(f.matched(segments[which].path) == segments[which].row.end);
      CHECK(f.has_payload(segments[which]));
    }
  }
}
