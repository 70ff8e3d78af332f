// Stored rows: decoding gives the encoded row, or a Status that tells damaged rows from newer ones.
#include "precis/catalog_row.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "precis/limits.h"
#include "tests/unit/schema/random_messages.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;
using testing::RandomMessages;

TEST_CASE("every kind of row round-trips with random content", "[unit][schema]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 51));
  CAPTURE(seed);
  RandomMessages random(seed);
  const SegmentRow segment = random.segment_row();
  REQUIRE(decode_segment_row(encode(segment)).value() == segment);
  const StoredSession session = random.stored_session();
  REQUIRE(decode_stored_session(encode(session)).value() == session);
  const StoredModel model = random.stored_model();
  REQUIRE(decode_stored_model(encode(model)).value() == model);
  const StoredBudget budget = random.stored_budget();
  REQUIRE(decode_stored_budget(encode(budget)).value() == budget);
  const StoredProjection projection = random.stored_projection();
  REQUIRE(decode_stored_projection(encode(projection)).value() == projection);
  const StoredProfile profile = random.stored_profile();
  REQUIRE(decode_stored_profile(encode(profile)).value() == profile);
  const StoredRevision revision = random.stored_revision();
  REQUIRE(decode_stored_revision(encode(revision)).value() == revision);
  const StoredTenant tenant = random.stored_tenant();
  REQUIRE(decode_stored_tenant(encode(tenant)).value() == tenant);
}

TEST_CASE("a row cut at any length is corrupt", "[unit][schema]") {
  const auto bytes = encode(RandomMessages(2).segment_row());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    REQUIRE(decode_segment_row(Bytes(bytes).first(size)).status().code() ==
            StatusCode::kCorruption);
  }
}

TEST_CASE("a row with any one bit flipped is corrupt, its version included", "[unit][schema]") {
  auto bytes = encode(RandomMessages(3).segment_row());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    CAPTURE(bit);
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= mask;
    REQUIRE(decode_segment_row(bytes).status().code() == StatusCode::kCorruption);
    bytes[bit / 8] ^= mask;
  }
  REQUIRE(decode_segment_row(bytes).ok());
}

TEST_CASE("random bytes and bytes past the end of a row are corrupt", "[unit][schema]") {
  RandomMessages random(4);
  for (int round = 0; round < 500; ++round) {
    const auto bytes = random.bytes(random.number(200));
    REQUIRE(decode_stored_model(bytes).status().code() == StatusCode::kCorruption);
  }
  auto bytes = encode(random.stored_session());
  bytes.resize(bytes.size() + 8);
  REQUIRE(decode_stored_session(bytes).status().code() == StatusCode::kCorruption);
}

TEST_CASE("a row of a newer format is a version mismatch that names both versions",
          "[unit][schema]") {
  const SegmentRow row = RandomMessages(5).segment_row();
  const Status status = decode_segment_row(encode(row, kRowVersion + 1)).status();
  REQUIRE(status.code() == StatusCode::kVersionMismatch);
  REQUIRE_THAT(status.message(), Contains("format version is 6, this build reads up to 5"));
}

TEST_CASE("the row of a segment with coded rows is of a version that older builds refuse",
          "[unit][schema]") {
  SegmentRow row = RandomMessages(5).segment_row();
  const std::pair<Encoding, std::uint32_t> versions[] = {{Encoding::kRaw, 1},
                                                         {Encoding::kInt8, 2},
                                                         {Encoding::kInt4, 2},
                                                         {Encoding::kK8V4, 3},
                                                         {Encoding::kK6V4, 3}};
  for (const auto& [encoding, version] : versions) {
    row.encoding = encoding;
    CHECK(encode(row) == encode(row, version));
    CHECK(decode_segment_row(encode(row))->encoding == encoding);
  }
}

TEST_CASE("the row of a model of f8 or with windows is of a version that older builds refuse",
          "[unit][schema]") {
  StoredModel row = RandomMessages(5).stored_model();
  const auto version = [&] {
    const auto bytes = encode(row);
    CHECK(decode_stored_model(bytes)->model == row.model);
    std::uint16_t of_row;
    std::memcpy(&of_row, bytes.data() + 4, sizeof of_row);
    return of_row;
  };
  for (const Dtype dtype : kDtypes) {
    row.model.dtype = dtype;
    row.model.windows.clear();
    CHECK(version() == (dtype == Dtype::kF8E4M3 ? 4 : 1));
    row.model.windows.assign(row.model.num_layers, 2);
    CHECK(version() == 5);
  }
}

TEST_CASE("a row of one kind is not taken for another", "[unit][schema]") {
  const auto session = encode(RandomMessages(6).stored_session());
  const Status status = decode_stored_budget(session).status();
  REQUIRE(status.code() == StatusCode::kCorruption);
  REQUIRE_THAT(status.message(), Contains("kind is 2, must be 4"));
}

TEST_CASE("a row whose parts do not fit together is corrupt and names the field",
          "[unit][schema]") {
  SegmentRow row = RandomMessages(7).segment_row();
  row.layer_bytes.push_back(1);
  CHECK_THAT(decode_segment_row(encode(row)).status().message(), Contains("layer_bytes"));
  row.layer_bytes.pop_back();
  row.begin = row.end + 1;
  const Status status = decode_segment_row(encode(row)).status();
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK_THAT(status.message(), Contains("segment row: end is ["));
}

TEST_CASE("the bytes of a row are the same on every run", "[unit][schema]") {
  // The frame of schema/catalog.capnp. A change here changes the stored format.
  const auto bytes = encode(StoredBudget{"t", {}, "keydiff", Budget::ratio_ppm(300000), 4, 5});
  const std::string magic(reinterpret_cast<const char*>(bytes.data()), 4);
  CHECK(magic == "PRCR");
  CHECK(bytes[4] == std::byte{1});
  CHECK(bytes[6] == std::byte{4});
  CHECK(bytes == encode(StoredBudget{"t", {}, "keydiff", Budget::ratio_ppm(300000), 4, 5}));
}

}  // namespace
}  // namespace precis
