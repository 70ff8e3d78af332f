#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/forwarding_store.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Counts the deletes of each change; fails after `writes_left` changes.
class CountedDeletes final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status write(const StoreBatch& batch, Durability durability) override {
    if (batch.deletes.empty()) return ForwardingStore::write(batch, durability);
    if (writes_left-- == 0) return Status::unavailable("the disk is away");
    batches.push_back(batch.deletes.size());
    return ForwardingStore::write(batch, durability);
  }
  std::vector<std::size_t> batches;
  std::size_t writes_left = 1000;
};

}  // namespace

TEST_CASE("a removed segment is gone from memory and store", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  std::vector<SegmentId> gone;
  const auto removed = f.catalog->remove(f.tenant, segment.row.id, false, &gone);
  REQUIRE(removed.ok());
  CHECK(removed->segments == 1);
  CHECK(removed->bytes == segment.row.stored_bytes);
  CHECK(gone == std::vector{segment.row.id});
  CHECK(f.match(segment.path).empty());
  CHECK(f.segment_code(segment.row.id) == StatusCode::kNotFound);
  CHECK(f.store.stats().payload_bytes == 0);
  CHECK(f.catalog->totals().stored_bytes == 0);
  CHECK(f.catalog->totals().original_bytes == 0);
  CHECK(models_of(*f.catalog, f.tenant).at(0).segments == 0);
  f.reopen();
  CHECK(f.catalog->totals().segments == 0);
}

TEST_CASE("removing what is not there is kNotFound", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(f.catalog->remove(f.tenant, SegmentId{}, true, nullptr).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a segment on which others stand goes only with them", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment root = f.put(tokens(6)), a = f.put(tokens(9), &root), b = f.put(tokens(12), &a),
                   other = f.put(tokens(4, 900));
  const auto refused = f.catalog->remove(f.tenant, root.row.id, false, nullptr);
  CHECK(refused.status().code() == StatusCode::kConflict);
  CHECK(refused.status().message().find(a.row.id.hex()) != std::string::npos);
  CHECK(f.matched(b.path) == 12);

  std::vector<SegmentId> gone;
  const auto removed = f.catalog->remove(f.tenant, root.row.id, true, &gone);
  REQUIRE(removed.ok());
  CHECK(removed->segments == 3);
  CHECK(gone == std::vector{root.row.id, a.row.id, b.row.id});
  CHECK(f.match(b.path).empty());
  CHECK(f.matched(other.path) == 4);
  CHECK(f.store.stats().payload_bytes == other.row.stored_bytes);
}

TEST_CASE("a pinned session keeps its whole chain from being removed, an unpinned one its tip not",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", b.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", true}).ok());

  for (const SegmentId& id : {a.row.id, b.row.id}) {
    const auto refused = f.catalog->remove(f.tenant, id, true, nullptr);
    CHECK(refused.status().code() == StatusCode::kConflict);
    CHECK(refused.status().message().find("chat") != std::string::npos);
  }
  CHECK(f.catalog->remove(f.tenant, c.row.id, true, nullptr).ok());  // its pinned ancestors stay

  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", false}).ok());
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, true, nullptr).ok());
  const auto session = f.catalog->session(f.tenant, "chat");
  REQUIRE(session.ok());
  CHECK(session->tip.is_null());
  CHECK(session->tip_end == 0);
  CHECK(session->turns == 1);
  f.reopen();
  CHECK(f.tip("chat").is_null());
}

TEST_CASE("a pinned session whose time has passed protects nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", true}).ok());
  f.clock.advance_ms(10'000);
  CHECK(f.catalog->remove(f.tenant, a.row.id, false, nullptr).ok());
}

TEST_CASE("a removal that the store refuses removes nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", segment.row.id}).ok());
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(f.catalog->remove(f.tenant, segment.row.id, false, nullptr).status().code() ==
        StatusCode::kUnavailable);
  CHECK(f.matched(segment.path) == 8);
  CHECK(f.has_payload(segment));
  CHECK(f.tip("chat") == segment.row.id);
}

TEST_CASE("a removal of very many layers is several changes, the leaves first", "[unit][catalog]") {
  CatalogFixture f;
  CountedDeletes counted(f.store);
  f.catalog = std::move(Catalog::open(counted, f.clock)).value();
  const NewSegment root = f.put(tokens(4));
  std::vector<NewSegment> leaves;
  for (TokenId i = 0; i < 4000; ++i) {
    Tokens path = tokens(4);
    path.push_back(5000 + i);
    leaves.push_back(f.put(path, &root));
  }
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", leaves[0].row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", true}).ok());
  counted.batches.clear();
  CHECK_FALSE(f.catalog->remove(f.tenant, root.row.id, true, nullptr).ok());
  CHECK(counted.batches.empty());  // refused as a whole
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", false}).ok());

  // A failure in the middle leaves a smaller tree.
  counted.batches.clear();
  counted.writes_left = 1;
  std::vector<SegmentId> gone;
  const auto failed = f.catalog->remove(f.tenant, root.row.id, true, &gone);
  CHECK(failed.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(failed.status().message(), Catch::Contains(std::to_string(gone.size()) + " segments"));
  CHECK(gone.size() > 1000);
  CHECK(f.matched(root.path) == 4);
  CHECK(f.catalog->totals().segments == 4001 - gone.size());

  counted.writes_left = 1000;
  const auto removed = f.catalog->remove(f.tenant, root.row.id, true, &gone);
  REQUIRE(removed.ok());
  CHECK(gone.front() == root.row.id);
  CHECK(gone.size() == removed->segments);
  CHECK(f.catalog->totals().segments == 0);
  CHECK(f.tip("chat").is_null());
  CHECK(counted.batches.size() >= 3);
  // For each segment, three layers and a row are deleted.
  CHECK(std::ranges::max(counted.batches) <= 4096 / 3 * 4);
  f.catalog.reset();
}

TEST_CASE("a removal of very many blocks is several changes", "[unit][catalog]") {
  CatalogFixture f(/*block_tokens=*/1);
  CountedDeletes counted(f.store);
  f.catalog = std::move(Catalog::open(counted, f.clock)).value();
  const NewSegment root = f.put(tokens(40'000)), next = f.put(tokens(80'000), &root);
  counted.batches.clear();
  REQUIRE(f.catalog->remove(f.tenant, root.row.id, true, nullptr).ok());
  CHECK(counted.batches == std::vector<std::size_t>{4, 4});  // three layers and a row of each
  CHECK(f.match(next.path).empty());
  f.catalog.reset();
}

TEST_CASE("a row outlives the removal of its segment for those who hold it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  const auto links = f.match(segment.path);
  REQUIRE(f.catalog->remove(f.tenant, segment.row.id, false, nullptr).ok());
  CHECK(*links.at(0).row == segment.row);
}

TEST_CASE("a segment may be put again after its removal", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(8));
  REQUIRE(f.catalog->remove(f.tenant, segment.row.id, false, nullptr).ok());
  CHECK(f.commit(segment).ok());
  CHECK(f.matched(segment.path) == 8);
  CHECK(f.has_payload(segment));
}
