// Committing, reading, listing.
#include <catch2/catch.hpp>

#include "cachesvc/catalog/segment_tree.h"
#include "precis/limits.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("a committed segment is found with its row, its payload and its numbers",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment parent = f.put(tokens(6));
  const NewSegment segment = f.put(tokens(11), &parent, 7, 3);
  CHECK(**f.catalog->segment(f.tenant, segment.row.id) == segment.row);
  CHECK(f.has_payload(segment));

  const auto info = f.catalog->info(f.tenant, segment.row.id, /*with_plan=*/true);
  REQUIRE(info.ok());
  CHECK(info->id == segment.row.id);
  CHECK(info->parent == parent.row.id);
  CHECK(info->begin == 6);
  CHECK(info->end == 11);
  CHECK(info->entries == 3u * 3 * 2);
  CHECK(info->stored_bytes == segment.row.stored_bytes);
  CHECK(info->original_bytes == segment.row.original_bytes);
  CHECK(info->budget == Budget::entries(7));
  CHECK(info->children == 0);
  CHECK(info->plan == segment.row.plan);
  CHECK(f.catalog->info(f.tenant, parent.row.id, false)->children == 1);
  CHECK_FALSE(f.catalog->info(f.tenant, parent.row.id, false)->plan);

  const auto totals = f.catalog->totals();
  CHECK(totals.segments == 2);
  CHECK(totals.models == 1);
  CHECK(totals.stored_bytes == parent.row.stored_bytes + segment.row.stored_bytes);
  CHECK(totals.original_bytes == parent.row.original_bytes + segment.row.original_bytes);
  CHECK(totals.quarantined_segments == 0);
}

TEST_CASE("a segment is not visible before the store has acknowledged it, nor if it refuses",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.segment(tokens(8));
  f.store.fail_next_write(Status::out_of_space("the disk is full"));
  CHECK(f.commit(segment) == Status::out_of_space("the disk is full"));
  CHECK(f.segment_code(segment.row.id) == StatusCode::kNotFound);
  CHECK(f.match(segment.path).empty());
  CHECK(f.catalog->totals().segments == 0);
  CHECK(f.store.stats().payload_bytes == 0);
  CHECK(f.commit(segment).ok());  // Nothing of the failed commit is left.
  CHECK(f.matched(segment.path) == 8);
}

TEST_CASE("committing a segment a second time changes nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  NewSegment again = segment;
  for (auto& layer : again.layers) std::fill(layer.begin(), layer.end(), std::byte{0});
  again.row.created_unix_ms += 5;
  CHECK(f.commit(again).ok());
  CHECK(f.has_payload(segment));
  CHECK(**f.catalog->segment(f.tenant, segment.row.id) == segment.row);
  CHECK(f.catalog->totals().segments == 1);
  CHECK(models_of(*f.catalog, f.tenant).at(0).segments == 1);
}

TEST_CASE("a segment whose parent is not stored, or no longer, is kNotFound", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment parent = f.segment(tokens(6));
  const NewSegment child = f.segment(tokens(9), &parent);
  CHECK(f.commit(child).code() == StatusCode::kNotFound);
  REQUIRE(f.commit(parent).ok());
  REQUIRE(f.catalog->remove(f.tenant, parent.row.id, false, nullptr).ok());
  CHECK(f.commit(child).code() == StatusCode::kNotFound);
  CHECK(f.catalog->totals().segments == 0);
}

TEST_CASE("a segment of an unregistered model is kNotFound", "[unit][catalog]") {
  CatalogFixture f;
  NewSegment segment = f.segment(tokens(8));
  segment.row.model.bytes[0] ^= 1;
  CHECK(f.commit(segment).code() == StatusCode::kNotFound);
}

TEST_CASE("a row that does not fit its model, its parent or its payload is kInvalidArgument",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment parent = f.put(tokens(6));
  NewSegment child = f.segment(tokens(11), &parent);
  SegmentRow& row = child.row;
  SECTION("it ends where it begins") { row.end = row.begin; }
  SECTION("it does not begin where its parent ends") { row.begin = 5; }
  SECTION("a root segment does not begin at 0") { row.parent = {}; }
  SECTION("it ends past the limit") { row.end = limits::kPathTokensMax + 1; }
  SECTION("a block digest is missing") { row.blocks.pop_back(); }
  SECTION("a block digest is too many") { row.blocks.emplace_back(); }
  SECTION("its tail is short") { row.tail.pop_back(); }
  SECTION("its tail is long") { row.tail.push_back(1); }
  SECTION("it lies under another root") { row.root.bytes[0] ^= 1; }
  SECTION("its plan has another shape") { row.plan.num_layers = 2; }
  SECTION("its plan lacks counts") { row.plan.counts.pop_back(); }
  SECTION("it has too few layers") {
    row.layer_bytes.pop_back();
    child.layers.pop_back();
  }
  SECTION("its payload lacks a layer") { child.layers.pop_back(); }
  SECTION("its payload has another size") { child.layers[1].pop_back(); }
  const Status status = f.commit(child);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find(row.id.hex()) != std::string::npos);
  CHECK(f.catalog->totals().segments == 1);
}

TEST_CASE("a chain has at most kChainSegmentsMax segments", "[unit][catalog]") {
  CatalogFixture f;
  Tokens path;
  NewSegment last;
  for (std::uint32_t i = 0; i < limits::kChainSegmentsMax; ++i) {
    path.push_back(i % 3);
    last = f.put(path, i == 0 ? nullptr : &last);
  }
  CHECK(f.match(path).size() == limits::kChainSegmentsMax);
  path.push_back(1);
  const Status status = f.commit(f.segment(path, &last));
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find(std::to_string(limits::kChainSegmentsMax)) != std::string::npos);
}

TEST_CASE("reading a layer checks its number and the buffer's size", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  std::vector<std::byte> into(segment.layers[0].size());
  CHECK(f.catalog->read_layer(segment.row, 0, into).ok());
  CHECK(f.catalog->read_layer(segment.row, 3, into).code() == StatusCode::kInvalidArgument);
  into.pop_back();
  CHECK(f.catalog->read_layer(segment.row, 0, into).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a layer missing from the store is kCorruption, of a removed segment kNotFound",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  std::vector<std::byte> into(segment.layers[1].size());
  std::string key;
  int layer = 0;
  REQUIRE(f.store
              .scan(Table::kPayload,
                    [&](std::string_view k, Bytes) -> Status {
                      if (layer++ == 1) key = k;
                      return {};
                    })
              .ok());
  REQUIRE(f.store.write({{}, {{Table::kPayload, key}}}, Durability::kWal).ok());
  CHECK(f.catalog->read_layer(segment.row, 1, into).code() == StatusCode::kCorruption);
  REQUIRE(f.catalog->remove(f.tenant, segment.row.id, false, nullptr).ok());
  CHECK(f.catalog->read_layer(segment.row, 1, into).code() == StatusCode::kNotFound);
}

TEST_CASE("chain gives a segment and what it stands on, from the root on", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(10), &b);
  const auto chain = f.catalog->chain(f.tenant, c.row.id);
  REQUIRE(chain.ok());
  REQUIRE(chain->size() == 3);
  CHECK((*chain)[0]->id == a.row.id);
  CHECK((*chain)[1]->id == b.row.id);
  CHECK((*chain)[2]->id == c.row.id);
}

TEST_CASE("to another tenant a segment is not there", "[unit][catalog]") {
  CatalogFixture f;
  const SegmentId id = f.put(tokens(8)).row.id;
  CHECK(f.catalog->segment("foreign", id).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->chain("foreign", id).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->info("foreign", id, true).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->remove("foreign", id, true, nullptr).status().code() == StatusCode::kNotFound);
  CHECK(segments_of(*f.catalog, "foreign", std::nullopt, 10).empty());
  CHECK(f.catalog->harden("foreign", id, Durability::kFsync).code() == StatusCode::kNotFound);
  CHECK(f.catalog->totals("foreign").segments == 0);
  CHECK(f.catalog->totals("foreign").stored_bytes == 0);
  CHECK(f.catalog->totals(f.tenant).segments == 1);
  CHECK(f.segment_code(id) == StatusCode::kOk);
}

TEST_CASE("segments are listed newest first, by model, up to a limit", "[unit][catalog]") {
  CatalogFixture f;
  std::vector<SegmentId> newest_first;
  for (std::uint32_t i = 0; i < 5; ++i) {
    f.clock.advance_ms(1);
    newest_first.insert(newest_first.begin(), f.put(tokens(4, 1000 * i)).row.id);
  }
  const auto ids = [&](std::optional<Digest> model, std::uint32_t limit) {
    std::vector<SegmentId> listed;
    for (const auto& info : segments_of(*f.catalog, f.tenant, model, limit))
      listed.push_back(info.id);
    return listed;
  };
  CHECK(ids(std::nullopt, 100) == newest_first);
  CHECK(ids(f.fingerprint, 100) == newest_first);
  CHECK(ids(std::nullopt, 2) == std::vector(newest_first.begin(), newest_first.begin() + 2));
  CHECK(ids(std::nullopt, 0).empty());
  CHECK(ids(Digest{}, 100).empty());
}

TEST_CASE("hits are counted at once; those of unknown segments are ignored", "[unit][catalog]") {
  CatalogFixture f;
  const SegmentId id = f.put(tokens(8)).row.id;
  f.catalog->count_hit(id);
  f.catalog->count_hit(id);
  f.catalog->count_hit(SegmentId{});
  CHECK(f.catalog->info(f.tenant, id, false)->hits == 2);
}

TEST_CASE("what is known of segments takes bounded memory: a commit past it is refused",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment first = f.put(tokens(400)), second = f.segment(tokens(400, 5000)),
                   third = f.segment(tokens(400, 9000));
  const std::uint64_t each = kept_bytes(first.row);
  CHECK(each >= first.row.blocks.size() * (sizeof(Digest) + 64));
  const auto open = [&](std::uint64_t max) {
    f.catalog = std::move(Catalog::open(f.store, f.clock, max)).value();
  };
  open(2 * each);
  CHECK(f.commit(second).ok());
  const Status refused = f.commit(third);
  CHECK(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(),
             Catch::Contains(std::to_string(2 * each)) && Catch::Contains("100 blocks"));
  CHECK(f.match(third.path).empty());
  CHECK(f.commit(third, Durability::kFsync).code() == StatusCode::kOutOfSpace);
  CHECK(f.commit(first).ok());  // it is already stored
  REQUIRE(f.catalog->remove(f.tenant, first.row.id, false, nullptr).ok());
  CHECK(f.commit(third).ok());

  open(each);  // stored segments stay, and can be removed
  CHECK(f.matched(second.path) == 400);
  CHECK(f.commit(first).code() == StatusCode::kOutOfSpace);
  REQUIRE(f.catalog->remove(f.tenant, second.row.id, false, nullptr).ok());
  REQUIRE(f.catalog->remove(f.tenant, third.row.id, false, nullptr).ok());
  CHECK(f.commit(first).ok());
}
