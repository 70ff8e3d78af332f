#include <catch2/catch.hpp>
#include <set>

#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

using Event = msg::KvEvent;
using Kind = Event::Kind;

// A reader that keeps a map of the blocks, as a router does.
struct Told {
  explicit Told(CatalogFixture& f) : fixture(f) { listen(); }
  void listen() {
    fixture.catalog->tell_events([this](std::vector<Catalog::TenantEvent> events) {
      for (Catalog::TenantEvent& each : events) {
        CHECK(each.tenant == fixture.tenant);
        apply(each.event);
        fresh.push_back(std::move(each.event));
      }
    });
  }
  void apply(const Event& event) {
    if (event.kind == Kind::kStored) blocks.insert(event.blocks.begin(), event.blocks.end());
    if (event.kind != Kind::kRemoved) return;
    for (const Digest& block : event.blocks) blocks.erase(block);
  }
  std::vector<Event> take() { return std::exchange(fresh, {}); }
  // Whether the map has exactly the blocks of what is stored, read in pages of two.
  bool is_right() const {
    std::set<Digest> stored;
    SegmentId after;
    do {
      const auto page = fixture.catalog->stored_events(fixture.tenant, after, 2);
      for (const Event& row : page.rows) stored.insert(row.blocks.begin(), row.blocks.end());
      after = page.last;
    } while (!after.is_null());
    return stored == blocks;
  }

  CatalogFixture& fixture;
  std::set<Digest> blocks;
  std::vector<Event> fresh;
};

}  // namespace

TEST_CASE("a put is told with its blocks, and with the block that they follow", "[unit][catalog]") {
  CatalogFixture f;
  Told told(f);
  const NewSegment a = f.put(tokens(9)), b = f.put(tokens(17), &a);
  const auto events = told.take();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == Kind::kStored);
  CHECK(events[0].segment == a.row.id);
  CHECK(events[0].blocks == a.row.blocks);
  CHECK(!events[0].parent_block);
  CHECK(events[0].root == f.root);
  CHECK(events[0].block_tokens == 4);
  CHECK(events[0].stored_bytes == a.row.stored_bytes);
  CHECK(events[1].parent == a.row.id);
  CHECK(events[1].parent_block == a.row.blocks.back());
  CHECK(events[1].blocks == b.row.blocks);
  // A put that stores nothing new, and one that fails, are not told.
  REQUIRE(f.commit(a).ok());
  NewSegment orphan = f.segment(tokens(21), &b);
  orphan.row.parent = f.segment(tokens(30)).row.id;
  CHECK_FALSE(f.commit(orphan).ok());
  CHECK(told.take().empty());
  CHECK(told.is_right());
}

TEST_CASE("a trim and its restoration are told, and children are not", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment whole = f.put(tokens(8), nullptr, 1, 3);
  f.put(tokens(16), &whole);
  Told told(f);
  const NewSegment less = trimmed(whole);
  REQUIRE(f.catalog->trim(whole.row, less.row, less.payload(), Durability::kWal).value());
  auto events = told.take();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Kind::kTrimmed);
  CHECK(events[0].bytes_before == whole.row.stored_bytes);
  CHECK(events[0].stored_bytes == less.row.stored_bytes);
  REQUIRE(f.commit(whole).ok());
  events = told.take();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Kind::kStored);
  CHECK(events[0].bytes_before == less.row.stored_bytes);
}

TEST_CASE("a removal names the blocks that nothing else has", "[unit][catalog]") {
  CatalogFixture f;
  Told told(f);
  const NewSegment a = f.put(tokens(8)), other = f.put(tokens(12), nullptr, 2);
  const NewSegment child = f.put(tokens(16), &a);
  told.take();
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, true, nullptr, Event::Cause::kCapacity).ok());
  const auto events = told.take();
  REQUIRE(events.size() == 2);
  CHECK(events[0].segment == child.row.id);  // children first
  CHECK(events[0].cause == Event::Cause::kCapacity);
  CHECK(events[0].bytes_before == child.row.stored_bytes);
  CHECK(events[0].blocks == std::vector<Digest>{child.row.blocks.back()});  // `other` has the first
  CHECK(events[1].segment == a.row.id);
  CHECK(events[1].blocks.empty());
  CHECK(told.is_right());
  REQUIRE(f.catalog->remove(f.tenant, other.row.id, false, nullptr).ok());
  CHECK(told.blocks.empty());
}

TEST_CASE("damage is told of a segment and what stands on it, and so is the end of it",
          "[unit][catalog]") {
  CatalogFixture f;
  Told told(f);
  NewSegment a = f.put(tokens(8));
  const NewSegment b = f.put(tokens(12), &a);
  told.take();
  f.catalog->quarantine(a.row);
  auto events = told.take();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == Kind::kRemoved);
  CHECK(events[0].cause == Event::Cause::kDamaged);
  CHECK(told.blocks.empty());
  CHECK(told.is_right());
  a.layers[0].assign(99, std::byte{5});
  a.row.stored_bytes += 99 - a.row.layer_bytes[0];
  a.row.layer_bytes[0] = 99;
  REQUIRE(f.commit(a).ok());
  events = told.take();
  REQUIRE(events.size() == 2);
  CHECK(events[0].segment == a.row.id);
  CHECK(events[1].segment == b.row.id);
  CHECK(told.is_right());
  // The removal of a segment that is already out of service is not told.
  f.catalog->quarantine(a.row);
  told.take();
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, true, nullptr).ok());
  CHECK(told.take().empty());
}

TEST_CASE("whatever happens, the events lead to what is stored", "[unit][catalog]") {
  CatalogFixture f;
  Told told(f);
  std::uint32_t state = GENERATE(1u, 2u, 3u);
  CAPTURE(state);
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  std::vector<NewSegment> known;
  for (int step = 0; step < 200; ++step) {
    const std::uint32_t what = known.empty() ? 0 : random(4);
    if (what <= 1) {
      const NewSegment* const parent =
          known.empty() || random(2) ? nullptr
                                     : &known[random(static_cast<std::uint32_t>(known.size()))];
      const std::uint32_t end = (parent ? parent->row.end : 0) + 1 + random(12);
      NewSegment made = f.segment(tokens(end), parent, 1 + random(3));
      if (f.commit(made).ok()) known.push_back(std::move(made));
    } else {
      const std::size_t at = random(static_cast<std::uint32_t>(known.size()));
      if (what == 2) {
        (void)f.catalog->remove(f.tenant, known[at].row.id, true, nullptr);
      } else if (const auto row = f.catalog->stored_segment(f.tenant, known[at].row.id); row.ok()) {
        f.catalog->quarantine(*row->row);
      }
    }
    CHECK(told.is_right());
  }
}
