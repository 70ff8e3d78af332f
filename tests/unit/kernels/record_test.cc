// Records from disk or network: truncated, oversize, flipped, cut.
#include <catch2/catch.hpp>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;
using Catch::Contains;

namespace {

// One sealed record of random entries, seats 1, 3, 5, ...
AlignedBytes make_record(std::uint32_t count, std::uint32_t head_dim, Dtype dtype, Rng& rng,
                         Encoding encoding = Encoding::kRaw) {
  const EntryForm form{head_dim, dtype, encoding};
  const auto layout = RecordLayout::of(count, form);
  AlignedBytes bytes(layout.size, std::byte{0});
  const MutableBytes record = bytes.mutable_bytes();
  const auto fill = [&](std::size_t offset, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      record[offset + i] = static_cast<std::byte>(pick(rng, 0, 255));
  };
  fill(layout.positions, count * 4);
  fill(layout.scores, count * 4);
  fill(layout.keys, count * layout.key_bytes);
  fill(layout.values, count * layout.value_bytes);
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t seat = 1 + 2 * k;
    std::memcpy(&record[layout.seats + 4 * k], &seat, 4);
  }
  seal_record(record, 5, 2, count, form, SegmentId{{7}});
  return bytes;
}

bool sound(Bytes bytes) {
  const Result<RecordView> view = open_record(bytes);
  return view.ok() && verify_record(*view).ok();
}

RecordHeader header_of(const AlignedBytes& record) {
  RecordHeader h;
  std::memcpy(&h, record.bytes().data(), sizeof h);
  return h;
}

// The status of opening a record whose header was changed after sealing.
template <typename Change>
Status open_changed(Change change) {
  Rng rng(1);
  AlignedBytes record = make_record(10, 4, Dtype::kF32, rng);
  RecordHeader h = header_of(record);
  change(h);
  std::memcpy(record.mutable_bytes().data(), &h, sizeof h);
  return open_record(record.bytes()).status();
}

}  // namespace

TEST_CASE("a sealed record opens as it was written", "[kernels][record]") {
  Rng rng(1);
  const std::uint32_t count = GENERATE(0u, 1u, 63u, 64u, 65u, 128u, 200u);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  const AlignedBytes record = make_record(count, 6, dtype, rng);
  std::size_t size = 0;
  const Result<RecordView> view = open_record(record.bytes(), &size);
  REQUIRE(view.ok());
  CHECK(size == record.bytes().size());
  CHECK((view->layer == 5 && view->head == 2 && view->count == count && view->head_dim == 6));
  CHECK(view->checksums.size() == checksum_blocks(count));
  CHECK(view->keys.size() == count * 6 * dtype_size_bytes(dtype));
  CHECK(verify_record(*view).ok());
}

TEST_CASE("a record cut short anywhere is corruption", "[kernels][record]") {
  Rng rng(2);
  const AlignedBytes record = make_record(70, 3, Dtype::kBf16, rng);
  for (std::size_t size = 0; size < record.bytes().size(); ++size) {
    const Status s = open_record(record.bytes().first(size)).status();
    if (s.code() != StatusCode::kCorruption) FAIL("accepted at " << size << " bytes");
  }
}

TEST_CASE("a flip of any single bit of a record is found", "[kernels][record]") {
  Rng rng(3);
  const Encoding encoding = GENERATE(from_range(kEncodings));
  AlignedBytes record = make_record(70, 4, Dtype::kBf16, rng, encoding);
  const MutableBytes bytes = record.mutable_bytes();
  REQUIRE(sound(bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      if (sound(bytes)) FAIL("bit " << bit << " of byte " << i << " flipped unseen");
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
}

TEST_CASE("random bytes are never a record", "[kernels][record]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    AlignedBytes noise(pick(rng, 0, 600));
    for (std::byte& b : noise.mutable_bytes()) b = static_cast<std::byte>(pick(rng, 0, 255));
    CHECK_FALSE(open_record(noise.bytes()).ok());
  }
}

TEST_CASE("header fields are refused by name", "[kernels][record]") {
  CHECK_THAT(open_changed([](RecordHeader& h) { h.magic ^= 1; }).message(), Contains("magic"));
  const Status version = open_changed([](RecordHeader& h) { h.version = kRecordVersion + 1; });
  CHECK(version.code() == StatusCode::kVersionMismatch);
  CHECK_THAT(open_changed([](RecordHeader& h) { h.count = 11; }).message(), Contains("checksum"));
}

TEST_CASE("a header sealed around impossible sizes is refused before anything is read",
          "[kernels][record]") {
  // seal_record does not check its arguments; the sizes below are those of a hostile writer.
  const auto refused = [](std::uint32_t layer, std::uint32_t head, std::uint32_t count,
                          std::uint32_t head_dim, std::uint8_t dtype) {
    const auto layout = RecordLayout::of(count, {head_dim, static_cast<Dtype>(dtype)});
    AlignedBytes record(layout.size, std::byte{0});
    seal_record(record.mutable_bytes(), layer, head, count, {head_dim, static_cast<Dtype>(dtype)},
                {});
    return open_record(record.bytes()).status();
  };
  CHECK(refused(1024, 0, 1, 1, 1).code() == StatusCode::kCorruption);
  CHECK(refused(0, 1024, 1, 1, 1).code() == StatusCode::kCorruption);
  CHECK(refused(0, 0, 1, 0, 1).code() == StatusCode::kCorruption);
  CHECK(refused(0, 0, 1, 1025, 1).code() == StatusCode::kCorruption);
  CHECK(refused(0, 0, 1, 1, 0).code() == StatusCode::kCorruption);
  CHECK(refused(0, 0, 1, 1, 9).code() == StatusCode::kCorruption);
  CHECK(refused(1023, 1023, 1, 1024, 3).ok());
}

TEST_CASE("a header whose version, encoding and head_dim do not fit is refused",
          "[kernels][record]") {
  const auto refused = [](std::uint16_t version, std::uint8_t encoding, std::uint32_t head_dim,
                          Dtype dtype = Dtype::kBf16) {
    const EntryForm form{head_dim, dtype, static_cast<Encoding>(encoding)};
    AlignedBytes record(RecordLayout::of(3, form).size, std::byte{0});
    seal_record(record.mutable_bytes(), 0, 0, 3, form, {});
    RecordHeader h = header_of(record);
    h.version = version;
    h.header_checksum = XXH3_64bits(&h, offsetof(RecordHeader, header_checksum));
    std::memcpy(record.mutable_bytes().data(), &h, sizeof h);
    return open_record(record.bytes()).status();
  };
  CHECK(refused(1, 0, 4).ok());
  CHECK(refused(2, 1, 5).ok());
  CHECK(refused(2, 2, 4).ok());
  CHECK(refused(0, 0, 4).code() == StatusCode::kVersionMismatch);
  CHECK(refused(3, 3, 6).ok());
  CHECK(refused(3, 4, 8).ok());
  CHECK(refused(4, 0, 4, Dtype::kF8E4M3).ok());
  CHECK(refused(4, 4, 4, Dtype::kF8E4M3).ok());
  CHECK(refused(5, 1, 4).code() == StatusCode::kVersionMismatch);
  CHECK_THAT(refused(1, 0, 4, Dtype::kF8E4M3).message(), Contains("version is 1, expected 4"));
  CHECK_THAT(refused(2, 0, 4).message(), Contains("version is 2, expected 1"));
  CHECK_THAT(refused(1, 1, 4).message(), Contains("version is 1, expected 2"));
  CHECK_THAT(refused(2, 3, 4).message(), Contains("version is 2, expected 3"));
  CHECK_THAT(refused(3, 5, 4).message(), Contains("encoding 5 is unknown"));
  CHECK_THAT(refused(2, 2, 5).message(), Contains("multiple of 2, not 5"));
  CHECK_THAT(refused(3, 3, 5).message(), Contains("multiple of 2, not 5"));
  CHECK_THAT(refused(3, 4, 6).message(), Contains("multiple of 4, not 6"));
}

TEST_CASE("a record at an odd address is refused, not read", "[kernels][record]") {
  Rng rng(1);
  const AlignedBytes record = make_record(3, 4, Dtype::kF32, rng);
  AlignedBytes shifted(record.bytes().size() + 64);
  const MutableBytes at = shifted.mutable_bytes().subspan(1, record.bytes().size());
  std::memcpy(at.data(), record.bytes().data(), at.size());
  CHECK(open_record(at).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("count_at is the number of seats within the budget", "[kernels][record]") {
  Rng rng(1);
  const AlignedBytes record = make_record(5, 1, Dtype::kF32, rng);  // seats 1 3 5 7 9
  const RecordView view = open_record(record.bytes()).value();
  const std::vector<std::uint32_t> expected = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  for (std::uint64_t t = 0; t < expected.size(); ++t) CHECK(count_at(view, t) == expected[t]);
  CHECK(count_at(view, ~std::uint64_t{0}) == 5);
}

TEST_CASE("a served cut is checked with whole-block checksums and a tail", "[kernels][record]") {
  Rng rng(4);
  AlignedBytes stored = make_record(200, 5, Dtype::kBf16, rng);
  const RecordView view = open_record(stored.bytes()).value();
  for (const std::uint32_t count : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 191u, 192u, 199u, 200u}) {
    CAPTURE(count);
    const Checksum tail = cut_tail_checksum(view, count).value();
    const auto ranges = cut_ranges(view, count);
    RecordView cut = view;  // the view that a reader builds over the received bytes
    cut.count = count;
    cut.checksums = {reinterpret_cast<const Checksum*>(ranges[0].data()), ranges[0].size() / 16};
    cut.positions = view.positions.first(ranges[1].size() / 4);
    cut.seats = view.seats.first(ranges[2].size() / 4);
    cut.scores = view.scores.first(ranges[3].size() / 4);
    cut.keys = ranges[4];
    cut.values = ranges[5];
    CHECK(cut.positions.size() == count);
    CHECK(cut.checksums.size() == count / 64);
    CHECK(cut.values.size() == count * 10);
    CHECK(verify_record(cut, &tail).ok());
    CHECK((count % 64 == 0) == (tail == Checksum{}));
    CHECK(verify_record(cut).ok() == (count % 64 == 0));  // the partial block needs its tail
    if (count == 0) continue;
    std::byte& last =
        stored.mutable_bytes()[ranges[5].data() - stored.bytes().data() + count * 10 - 1];
    last ^= std::byte{0x80};
    const Status s = verify_record(cut, &tail);
    CHECK(s.code() == StatusCode::kCorruption);
    CHECK_THAT(s.message(), Contains("layer 5, head 2, block " + std::to_string((count - 1) / 64)));
    last ^= std::byte{0x80};
  }
}

TEST_CASE("damage behind the cut, in the same block, is not hashed afresh", "[kernels][record]") {
  Rng rng(4);
  AlignedBytes stored = make_record(100, 5, Dtype::kBf16, rng);
  const RecordView view = open_record(stored.bytes()).value();
  const auto layout = RecordLayout::of(100, {5, Dtype::kBf16});
  stored.mutable_bytes()[layout.keys + 99 * 10] ^= std::byte{1};
  CHECK(cut_tail_checksum(view, 70).status().code() == StatusCode::kCorruption);
  CHECK(cut_tail_checksum(view, 30).ok());
  CHECK(cut_tail_checksum(view, 64).value() == Checksum{});
  CHECK(cut_tail_checksum(view, 101).status().code() == StatusCode::kInvalidArgument);
}
