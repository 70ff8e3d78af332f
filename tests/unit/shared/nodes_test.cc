// Catalogs of several nodes over one shared storage.
#include "tests/unit/shared/shared_node.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("a node that takes a shard has the segments and sessions of its former holder",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.put(segment).ok());
  msg::OpenSession open;
  open.name = "chat";
  REQUIRE(a.catalog->open_session(made().tenant, open, kShard).ok());
  REQUIRE(a.catalog->advance_session(made().tenant, {"chat", segment.row.id}).ok());
  REQUIRE(a.copied().ok());

  b.take();
  CHECK(b.has(segment));
  CHECK(b.catalog->session(made().tenant, "chat")->tip == segment.row.id);
  const std::uint64_t calls = tier.calls();
  CHECK(b.has(segment));  // by now from its own disk
  CHECK(tier.calls() == calls);

  // The former holder's next change fails, and does not reach anybody.
  const NewSegment late = in_shard(tokens(8, 500));
  CHECK(a.put(late).ok());
  CHECK(a.copied().code() == StatusCode::kMoved);
  CHECK(a.uploads->take_lost() == std::vector<std::uint32_t>{kShard});
  b.drop();
  b.take();
  CHECK_FALSE(b.has(late));
  CHECK(b.has(segment));
}

TEST_CASE("a node serves a segment of another one until its time, and only to its tenant",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const NewSegment segment = in_shard(tokens(8));
  const SegmentId& id = segment.row.id;
  REQUIRE(a.put(segment).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(b.catalog->register_model(made().tenant, made().model).ok());
  const auto keep = [&](std::uint64_t until_ns, const std::string& tenant = made().tenant) {
    const std::vector<std::string> keys = {shared_key(Table::kSegments, segment_key(id))};
    auto found = tier.rows(kShard, keys).value();
    std::vector<Catalog::StoredRow> rows;
    if (found[0]) rows.push_back({Table::kSegments, segment_key(id), *std::move(found[0])});
    b.catalog->keep_guests(tenant, std::move(rows), until_ns);
  };
  const auto served = [&](const std::string& tenant) {
    return b.catalog->served_segment(tenant, id);
  };
  const std::uint64_t late = ~0ull / 2;
  CHECK_FALSE(served(made().tenant).ok());
  keep(late, "other");  // which names a segment that is not its own
  CHECK_FALSE(served("other").ok());
  CHECK_FALSE(served(made().tenant).ok());
  keep(late);
  CHECK_FALSE(served("other").ok());
  const auto row = served(made().tenant).value();
  b.catalog->limit_kept(~0ull);
  int staged = 0;
  b.on_stage = [&] { ++staged; };
  for (std::uint32_t l = 0; l < segment.layers.size(); ++l) {
    std::vector<std::byte> read(segment.layers[l].size());
    bool was_here = true;
    REQUIRE(b.catalog->peek_layer(*row, l, read, &was_here).ok());
    CHECK(read == segment.layers[l]);
    CHECK_FALSE(was_here);
    b.catalog->keep_layer(*row, l, read);  // keeps nothing
  }
  CHECK(staged == 0);
  // The segment is neither found nor listed at node "b", and can't be changed there.
  CHECK_FALSE(b.catalog->segment(made().tenant, id).ok());
  CHECK(b.catalog->totals().segments == 0);
  CHECK(b.catalog->remove(made().tenant, id, false, nullptr).status().code() ==
        StatusCode::kNotFound);
  keep(late);  // the same version stays the same row
  CHECK(served(made().tenant).value() == row);
  CHECK(b.catalog->end_guests().empty());
  keep(1);
  CHECK_FALSE(served(made().tenant).ok());
  CHECK(b.catalog->end_guests() == std::vector{id});
  CHECK(b.catalog->end_guests().empty());
}

TEST_CASE("a tenant's many segments of other nodes leave room for another tenant's",
          "[unit][shared]") {
  MemoryTier tier;
  Node node(tier, "a");
  const auto row_of = [](const std::string& tenant, std::uint32_t number) {
    SegmentRow row = in_shard(tokens(8)).row;
    row.tenant = tenant;
    std::memcpy(row.id.bytes.data(), &number, sizeof number);
    return row;
  };
  const auto keep = [&](const SegmentRow& row, std::uint64_t until_ns) {
    node.catalog->keep_guests(row.tenant, {{Table::kSegments, segment_key(row.id), encode(row)}},
                              until_ns);
  };
  const std::uint64_t late = ~0ull / 2;
  constexpr std::uint32_t kMany = 6000, kFew = 40;
  for (std::uint32_t n = 0; n < kMany; ++n) keep(row_of("many", n), late);
  for (std::uint32_t n = 0; n < kFew; ++n) keep(row_of("few", kMany + n), late);
  std::size_t many = 0, few = 0;
  for (std::uint32_t n = 0; n < kMany; ++n) {
    many += node.catalog->served_segment("many", row_of("many", n).id).ok() ? 1 : 0;
  }
  for (std::uint32_t n = kMany; n < kMany + kFew; ++n) {
    few += node.catalog->served_segment("few", row_of("few", n).id).ok() ? 1 : 0;
  }
  CHECK(few == kFew);
  CHECK(many < kMany);
  CHECK(many > kMany / 2);
}

TEST_CASE("a row whose bytes cannot be copied is not shared by a later change of it either",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment segment = in_shard(tokens(8)), other = in_shard(tokens(8, 500));
  tier.refuse_objects(true);
  const Uploads::Held before = a.uploads->held(kShard);
  REQUIRE(a.put(segment).ok());
  CHECK(a.copied().code() == StatusCode::kCorruption);
  CHECK(a.uploads->lag().changes == 0);
  CHECK(a.copied().code() == StatusCode::kCorruption);  // as told to a caller that asks late
  CHECK(a.copied_since(a.uploads->held(kShard)).ok());  // who has changed nothing
  tier.refuse_objects(false);
  const auto is_shared = [&] {
    const std::vector<std::string> keys = {
        shared_key(Table::kSegments, segment_key(segment.row.id))};
    return tier.rows(kShard, keys).value().front().has_value();
  };
  const auto set_priority = [&](std::uint32_t priority) {
    return a.catalog->set_retention(made().tenant, {segment.row.id, priority, {}}).ok();
  };
  REQUIRE(set_priority(7));
  REQUIRE(a.put(other).ok());
  CHECK(a.copied().ok());
  CHECK(a.copied_since(before).code() == StatusCode::kCorruption);
  CHECK_FALSE(is_shared());
  CHECK(a.has(segment));
  // A new put of the segment is copied.
  REQUIRE(a.catalog->remove(made().tenant, segment.row.id, false, nullptr).ok());
  REQUIRE(a.put(segment).ok());
  CHECK(a.copied().ok());
  CHECK(is_shared());
  REQUIRE(set_priority(8));
  CHECK(a.copied().ok());
  CHECK(is_shared());
}

TEST_CASE("a shard that is not loaded can't be changed, and has nothing", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.catalog->register_model(made().tenant, made().model).ok());
  CHECK(a.put(segment).code() == StatusCode::kMoved);
  a.take();
  REQUIRE(a.put(segment).ok());
  REQUIRE(a.copied().ok());
  CHECK(a.drop() == std::vector<SegmentId>{segment.row.id});
  CHECK_FALSE(a.has(segment));
  CHECK(a.catalog->totals().segments == 0);
  CHECK(a.put(segment).code() == StatusCode::kMoved);
  a.take();
  const std::uint64_t calls = tier.calls();
  CHECK(a.has(segment));  // from the copy on its disk
  CHECK(tier.calls() == calls);
}

TEST_CASE("segments that only a node's disk has are shared when it takes the shard again",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const NewSegment first = in_shard(tokens(8)), second = in_shard(tokens(8, 500));
  REQUIRE(a.put(first).ok());
  REQUIRE(a.copied().ok());
  tier.fail(true);
  REQUIRE(a.put(second).ok());
  a.close();
  tier.fail(false);
  a.open();
  CHECK_FALSE(a.has(first));
  SECTION("unless another node has changed the shard meanwhile") {
    b.take();
    REQUIRE(b.put(in_shard(tokens(8, 900))).ok());
    REQUIRE(b.copied().ok());
    a.take();
    CHECK(a.has(first));
    CHECK_FALSE(a.has(second));
    CHECK(a.catalog->lost_segments() == 1);
    return;
  }
  a.take();
  CHECK(a.has(first));
  CHECK(a.has(second));
  REQUIRE(a.copied().ok());
  b.take();
  CHECK(b.has(second));
  CHECK(a.catalog->lost_segments() == 0);
}

TEST_CASE("a put of a trimmed segment makes a later version, also if the clock steps back",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment whole = in_shard(tokens(8), 1000);
  REQUIRE(a.put(whole).ok());
  const auto row = a.catalog->segment(made().tenant, whole.row.id).value();
  const NewSegment less = trimmed(whole);
  CHECK(*a.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  REQUIRE(a.copied().ok());
  tier.fail(true);
  const std::uint64_t now = GENERATE(1001, 1000, 1);
  REQUIRE(a.put(in_shard(tokens(8), now)).ok());
  a.close();
  tier.fail(false);
  a.open();
  a.take();
  CHECK(a.has(whole));
}

TEST_CASE("a node does not use copies of what others changed", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const NewSegment cut = in_shard(tokens(8)), removed = in_shard(tokens(8, 500));
  REQUIRE(a.put(cut).ok());
  REQUIRE(a.put(removed).ok());
  REQUIRE(a.copied().ok());
  const std::size_t objects = tier.objects();
  b.take();
  const auto row = b.catalog->segment(made().tenant, cut.row.id).value();
  NewSegment less = trimmed(cut);
  less.row.created_unix_ms = 2;
  CHECK(*b.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  REQUIRE(b.catalog->remove(made().tenant, removed.row.id, false, nullptr).ok());
  REQUIRE(b.copied().ok());
  CHECK(tier.objects() == objects / 2);  // of the trimmed segment only
  a.drop();
  a.take();
  CHECK(a.has(less));
  CHECK_FALSE(a.has(removed));
}

TEST_CASE("changes wait while the shared storage fails, and are copied in order later",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const bool loses = GENERATE(false, true);  // answers, of calls that were made
  loses ? tier.lose_answers(true) : tier.fail(true);
  std::vector<NewSegment> segments;
  for (TokenId n = 1; n <= 100; ++n) {
    segments.push_back(in_shard(tokens(8, n * 1000)));
    REQUIRE(a.put(segments.back()).ok());
    if (n % 2 == 0) {
      REQUIRE(a.catalog->remove(made().tenant, segments.back().row.id, false, nullptr).ok());
    }
  }
  CHECK(a.uploads->lag().changes > 0);
  loses ? tier.lose_answers(false) : tier.fail(false);
  REQUIRE(a.copied().ok());
  CHECK(a.uploads->lag().changes == 0);
  CHECK(a.uploads->lag().bytes == 0);
  b.take();
  for (std::size_t n = 0; n < segments.size(); ++n) CHECK(b.has(segments[n]) == (n % 2 == 0));
  CHECK(tier.objects() == segments.size() / 2 * 3);
}
