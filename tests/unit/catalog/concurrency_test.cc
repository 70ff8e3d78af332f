// Threads commit, match, advance, remove and quarantine at the same time; the catalog stays
// consistent. Run these tests under ThreadSanitizer, too.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <thread>

#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/forwarding_store.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Whether a matched chain is complete from the root on and each of its layers can be read or has
// been removed.
bool sound(const CatalogFixture& f, const std::vector<Catalog::Link>& links) {
  SegmentId below;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const SegmentRow& row = *links[i].row;
    if (row.parent != below) return false;
    if (i + 1 < links.size() ? links[i].matched_end != row.end : links[i].matched_end > row.end)
      return false;
    below = row.id;
    std::vector<std::byte> into(row.layer_bytes[0]);
    const StatusCode code = f.catalog->read_layer(row, 0, into).code();
    if (code != StatusCode::kOk && code != StatusCode::kNotFound) return false;
  }
  return true;
}

// Calls back between a change's write and its visibility in memory, and after a read finds nothing.
class ToldStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::function<void()> after_write, after_miss;

  Status write(const StoreBatch& batch, Durability durability) override {
    Status status = ForwardingStore::write(batch, durability);
    if (after_write) after_write();
    return status;
  }
  Status read_into(const std::string& key, MutableBytes into) override {
    Status status = ForwardingStore::read_into(key, into);
    if (status.code() == StatusCode::kNotFound && after_miss) after_miss();
    return status;
  }
};

}  // namespace

TEST_CASE("a layer that is read while its segment is removed is gone, not damaged",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  ToldStore store(f.store);
  auto opened = Catalog::open(store, f.clock);
  REQUIRE(opened.ok());
  const std::unique_ptr<Catalog> catalog = std::move(opened).value();
  std::atomic<bool> missed{false}, done{false};
  StatusCode code = StatusCode::kOk;
  std::thread reader;
  store.after_miss = [&] { missed = true; };
  store.after_write = [&] {
    reader = std::thread([&] {
      std::vector<std::byte> into(a.layers[0].size());
      code = catalog->read_layer(a.row, 0, into).code();
      done = true;
    });
    while (!missed) std::this_thread::yield();
    // Gives the reader time to answer without waiting for the change, which would be wrong.
    for (int turn = 0; turn < 10'000 && !done; ++turn) std::this_thread::yield();
  };
  REQUIRE(catalog->remove(f.tenant, a.row.id, false, nullptr).ok());
  reader.join();
  store.after_write = nullptr;
  CHECK(code == StatusCode::kNotFound);
}

TEST_CASE("commits, look-ups and removals from many threads keep every chain whole",
          "[unit][catalog]") {
  CatalogFixture f;
  // One chain of five segments per lane; the lanes share their first segment.
  std::vector<std::vector<NewSegment>> lanes(3);
  for (TokenId lane = 0; lane < lanes.size(); ++lane) {
    for (std::uint32_t length = 6; length <= 18; length += 3) {
      Tokens path = tokens(length);
      std::fill(path.begin() + 6, path.end(), 1000 + lane);
      lanes[lane].push_back(f.segment(path, lanes[lane].empty() ? nullptr : &lanes[lane].back()));
    }
  }
  std::atomic<int> unsound{0}, unexpected{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      const std::string session = "s" + std::to_string(t);
      for (int step = 0; step < 400; ++step) {
        const auto& lane = lanes[random() % lanes.size()];
        const NewSegment& segment = lane[random() % lane.size()];
        Status status;
        switch (random() % 6) {
          case 0:
          case 1:
            status = f.commit(segment, random() % 2 ? Durability::kWal : Durability::kMemory);
            break;
          case 2:
            if (random() % 3 == 0) {
              status = f.catalog->remove(f.tenant, segment.row.id, true, nullptr).status();
            }
            break;
          case 3:
            if (random() % 8 == 0) f.catalog->quarantine(segment.row);
            f.catalog->count_hit(segment.row.id);
            break;
          case 4:
            status = f.catalog->open_session(f.tenant, {session, 10}).status();
            if (status.ok())
              status = f.catalog->advance_session(f.tenant, {session, segment.row.id}).status();
            break;
          default:
            if (!sound(f, f.match(lane.back().path))) ++unsound;
        }
        if (status.code() == StatusCode::kInternal || status.code() == StatusCode::kUnavailable) {
          ++unexpected;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(unsound == 0);
  CHECK(unexpected == 0);

  // The catalog in memory equals the rows in the store.
  const auto before = f.catalog->totals();
  std::vector<std::uint32_t> matched;
  for (const auto& lane : lanes) matched.push_back(f.matched(lane.back().path));
  f.reopen();
  const auto after = f.catalog->totals();
  CHECK(after.segments == before.segments);
  CHECK(after.stored_bytes == before.stored_bytes);
  CHECK(after.quarantined_segments == before.quarantined_segments);
  CHECK(f.store.stats().payload_bytes == after.stored_bytes);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    CHECK(f.matched(lanes[lane].back().path) == matched[lane]);
  }
}
