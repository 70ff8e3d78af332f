// A cut's ranges, concatenated, have the layout of ServedLayout and pass the reader's check.
#include "cachesvc/pipeline/cut.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "tests/unit/pipeline/made_records.h"

namespace precis {
namespace {

constexpr std::uint32_t kHeads = 2, kHeadDim = 6, kLayer = 3;
constexpr Dtype kDtype = Dtype::kF16;

// One link's records of a layer: head h has an entry for each of seats[h].
std::vector<std::byte> make_records(const testing::Seats& seats, std::mt19937& random,
                                    std::uint32_t layer = kLayer) {
  return testing::make_records({SegmentId{}, layer, kHeadDim, kDtype}, seats, random);
}

constexpr EntryForm kRows{kHeadDim, kDtype};
constexpr LayerShape kShape{kLayer, 0, kHeads, kHeadDim, kDtype};

// Cuts each link at its number of entries.
Result<LayerCut> cut_at(std::span<const Bytes> links, std::span<const std::uint64_t> entries,
                        Bytes zeros) {
  PRECIS_ASSIGN(const LayerRecords layer, open_layer(links, kShape));
  return cut_layer(layer, counts_at(layer, entries), zeros);
}

// Distributes seats 1..total at random over the heads.
testing::Seats deal(std::uint32_t total, std::mt19937& random) {
  testing::Seats seats(kHeads);
  for (std::uint32_t seat = 1; seat <= total; ++seat) seats[random() % kHeads].push_back(seat);
  return seats;
}

std::vector<std::byte> gather(const LayerCut& cut) {
  std::vector<std::byte> out;
  for (const Bytes range : cut.ranges) out.insert(out.end(), range.begin(), range.end());
  return out;
}

// Checks as the reader does: slices by the layout and checks each link's part of each head.
void check_as_reader(const LayerCut& cut, const std::vector<std::byte>& served,
                     const std::vector<std::vector<std::byte>>& links) {
  const ServedLayout layout =
      ServedLayout::of(cut.counts, kHeads, std::vector(links.size(), kRows));
  REQUIRE(layout.size_bytes == cut.size_bytes);
  REQUIRE(served.size() == cut.size_bytes);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    auto at = layout.heads[h].section;
    for (std::size_t link = 0; link < links.size(); ++link) {
      const std::uint32_t count = cut.counts[link * kHeads + h];
      Bytes rest = links[link];
      std::size_t size = 0;
      for (std::uint32_t skip = 0; skip < h; ++skip) {
        REQUIRE(kernels::open_record(rest, &size).ok());
        rest = rest.subspan(size);
      }
      const auto stored = kernels::open_record(rest, &size);
      REQUIRE(stored.ok());
      const auto parts = served_part_bytes(count, kRows);
      const auto expected = kernels::cut_ranges(*stored, count);
      for (std::size_t s = 0; s < kServedSections; ++s) {
        REQUIRE(expected[s].size() == parts[s]);
        CHECK(std::equal(expected[s].begin(), expected[s].end(), served.begin() + at[s]));
        at[s] += parts[s];
      }
    }
  }
}

}  // namespace

TEST_CASE("a cut's ranges fill the reader's layout", "[unit][pipeline]") {
  const std::uint32_t seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t num_links = 1 + seed % 3;
  std::vector<std::vector<std::byte>> links;
  std::vector<Bytes> records;
  std::vector<std::uint64_t> entries;
  const std::vector<std::byte> zeros(kSectionAlign);
  for (std::size_t link = 0; link < num_links; ++link) {
    const std::uint32_t total = 1 + random() % 400;
    links.push_back(make_records(deal(total, random), random));
    entries.push_back(1 + random() % total);
  }
  for (const auto& link : links) records.emplace_back(link);
  for (const bool whole : {false, true}) {
    if (whole) std::fill(entries.begin(), entries.end(), UINT64_MAX);
    const auto cut = cut_at(records, entries, zeros);
    REQUIRE(cut.ok());
    check_as_reader(*cut, gather(*cut), links);
    std::uint64_t total = 0;
    for (const std::uint32_t count : cut->counts) total += count;
    if (!whole) CHECK(total == std::accumulate(entries.begin(), entries.end(), std::uint64_t{0}));
  }
}

TEST_CASE("some heads are cut as they are of the whole layer", "[unit][pipeline]") {
  std::mt19937 random(5);
  const auto link = make_records(deal(150, random), random);
  const std::vector<std::byte> zeros(kSectionAlign);
  const Bytes records[] = {link};
  const std::uint64_t entries[] = {97};
  const LayerRecords both = open_layer(records, kShape).value();
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    const LayerRecords one = open_layer(records, {kLayer, h, 1, kHeadDim, kDtype}).value();
    REQUIRE(one.records.size() == 1);
    const auto cut = cut_layer(one, counts_at(one, entries), zeros).value();
    CHECK(cut.counts == std::vector{counts_at(both, entries)[h]});
    const auto& record = both.at(0, h).view;
    const auto keys = kernels::cut_ranges(record, cut.counts[0])[4];
    const std::vector<std::byte> served = gather(cut);
    const std::size_t at = ServedLayout::of(cut.counts, 1, {&kRows, 1}).heads[0].section[4];
    CHECK(std::equal(keys.begin(), keys.end(), served.begin() + static_cast<std::ptrdiff_t>(at)));
  }
}

TEST_CASE("a cut of more than a record holds is corruption", "[unit][pipeline]") {
  std::mt19937 random(5);
  const auto link = make_records({{1, 2, 3}, {4}}, random);
  const Bytes records[] = {link};
  const LayerRecords layer = open_layer(records, kShape).value();
  const std::vector<std::byte> zeros(kSectionAlign);
  CHECK(cut_layer(layer, {3, 1}, zeros).ok());
  const auto cut = cut_layer(layer, {3, 2}, zeros);
  CHECK(cut.status().code() == StatusCode::kCorruption);
  CHECK_THAT(cut.status().message(), Catch::Contains("head 1 has 1 entry, not the 2"));
}

TEST_CASE("one link alone needs no range of zeros", "[unit][pipeline]") {
  std::mt19937 random(7);
  const auto link = make_records(deal(150, random), random);
  const std::vector<std::byte> zeros(kSectionAlign);
  const std::vector<Bytes> records = {link};
  const std::vector<std::uint64_t> entries = {97};
  const auto cut = cut_at(records, entries, zeros);
  REQUIRE(cut.ok());
  for (const Bytes range : cut->ranges) {
    CHECK(range.data() >= link.data());
    CHECK(range.data() + range.size() <= link.data() + link.size());
  }
}

TEST_CASE("damage in a cut's last block is found, not hashed afresh", "[unit][pipeline]") {
  std::mt19937 random(11);
  auto link = make_records({{1, 2, 3, 4, 5}, {6, 7}}, random);
  const RecordLayout at = RecordLayout::of(5, {kHeadDim, kDtype});
  link[at.keys + 4 * at.key_bytes] ^= std::byte{1};  // in the entry after the cut
  const std::vector<std::byte> zeros(kSectionAlign);
  const std::vector<Bytes> records = {link};
  const std::vector<std::uint64_t> entries = {3};
  const auto cut = cut_at(records, entries, zeros);
  CHECK(cut.status().code() == StatusCode::kCorruption);
}

TEST_CASE("a record in the wrong place is corruption", "[unit][pipeline]") {
  std::mt19937 random(13);
  const auto link = make_records(deal(10, random), random, /*layer=*/kLayer + 1);
  const std::vector<std::byte> zeros(kSectionAlign);
  const std::vector<Bytes> records = {link};
  const std::vector<std::uint64_t> entries = {10};
  const auto cut = cut_at(records, entries, zeros);
  CHECK(cut.status().code() == StatusCode::kCorruption);
  CHECK_THAT(cut.status().message(), Catch::Contains("layer 3 head 0"));
}

TEST_CASE("records of another segment, or other than the catalog says, are corruption",
          "[unit][pipeline]") {
  std::mt19937 random(17);
  const auto records = make_records(deal(10, random), random);
  SegmentRow row;
  row.plan = {kLayer + 1, kHeads, std::vector<std::uint32_t>((kLayer + 1) * kHeads)};
  std::size_t size = 0;
  Bytes rest = records;
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    row.plan.counts[kLayer * kHeads + h] = kernels::open_record(rest, &size)->count;
    rest = rest.subspan(size);
  }
  CHECK(check_records(records, row, kLayer).ok());
  CHECK(check_records(records, row, 0).code() == StatusCode::kCorruption);
  SegmentRow other = row;
  other.id.bytes[0] = 1;
  CHECK_THAT(check_records(records, other, kLayer).message(),
             Catch::Contains("does not belong there"));
  ++row.plan.counts[kLayer * kHeads + 1];
  CHECK_THAT(check_records(records, row, kLayer).message(), Catch::Contains("head 1"));
  CHECK(check_records(Bytes(records).first(records.size() - 64), row, kLayer).code() ==
        StatusCode::kCorruption);
}

TEST_CASE("any bit of stored records that flips is found, or changes nothing that is served",
          "[unit][pipeline]") {
  std::mt19937 random(11);
  std::vector<std::byte> records = make_records(deal(150, random), random);
  SegmentRow row;
  row.plan.num_layers = kLayer + 1;
  row.plan.num_kv_heads = kHeads;
  row.plan.counts.resize((kLayer + 1) * kHeads);
  Bytes rest(records);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    std::size_t size = 0;
    row.plan.counts[kLayer * kHeads + h] = kernels::open_record(rest, &size)->count;
    rest = rest.subspan(size);
  }
  const std::vector<std::byte> zeros(kSectionAlign);
  const auto served = [&]() -> Result<std::vector<std::byte>> {
    PRECIS_TRY(check_records(records, row, kLayer));
    const Bytes links[] = {records};
    const std::uint64_t entries[] = {150};
    PRECIS_ASSIGN(const LayerCut cut, cut_at(links, entries, zeros));
    return gather(cut);
  };
  const std::vector<std::byte> right = served().value();
  std::size_t found = 0;
  for (std::size_t bit = 0; bit < records.size() * 8; ++bit) {
    const std::byte mask = std::byte{1} << bit % 8;
    records[bit / 8] ^= mask;
    const auto got = served();
    records[bit / 8] ^= mask;
    if (!got.ok()) {
      ++found;
      if (got.status().code() == StatusCode::kCorruption) continue;
    }
    CAPTURE(bit, got.status().to_string());
    REQUIRE(got.ok());
    REQUIRE(*got == right);
  }
  CHECK(found > records.size() * 7);  // all bytes except padding
}

}  // namespace precis
