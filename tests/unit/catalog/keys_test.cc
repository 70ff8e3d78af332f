#include "cachesvc/catalog/catalog_keys.h"

#include <catch2/catch.hpp>

using namespace precis;

namespace {

SegmentId id_of(std::uint8_t n) {
  SegmentId id;
  id.bytes.fill(n);
  return id;
}

}  // namespace

TEST_CASE("keys have the published bytes", "[unit][catalog]") {
  Digest digest;
  digest.bytes.fill(0xab);
  CHECK(segment_key(id_of(7)) == std::string(16, '\7'));
  CHECK(payload_key(id_of(7), 0x01020304) == std::string(16, '\7') + "\1\2\3\4");
  CHECK(session_key("te", "name") == std::string("\0\0\0\2tename", 10));
  CHECK(model_key("t", digest) == std::string("\0\0\0\1t", 5) + std::string(32, '\xab'));
  CHECK(budget_key("t", std::nullopt) == std::string("\0\0\0\1t", 5));
  CHECK(budget_key("t", digest) == model_key("t", digest));
  CHECK(stored_tenant_key("te") == std::string("tenant/\0\0\0\2te", 13));
  CHECK(quarantine_key(id_of(7)) == "quarantine/" + std::string(16, '\7'));
}

TEST_CASE("a tenant's end cannot be moved into the name", "[unit][catalog]") {
  CHECK(session_key("ab", "c") != session_key("a", "bc"));
  CHECK(session_key("", "abc") != session_key("abc", ""));
}

TEST_CASE("payload keys of a segment stand in the order of its layers", "[unit][catalog]") {
  std::string last;
  for (const std::uint32_t layer : {0u, 1u, 127u, 128u, 255u, 256u, 65'536u, 0xffffffffu}) {
    const std::string key = payload_key(id_of(1), layer);
    CHECK(last < key);
    last = key;
  }
}

TEST_CASE("the name of an object says its shard, segment and layer, and other names nothing",
          "[unit][catalog]") {
  SegmentRow row;
  row.id = id_of(0xab);
  row.shard = 0x1f;
  row.created_unix_ms = 1234;
  row.plan = {1, 2, {5, 6}};
  const std::string name = object_name(row, 7);
  CHECK(name == "001f-abababababababababababababababab-1234-11-7");
  const auto said = object_in(name);
  REQUIRE(said);
  CHECK(said->shard == 0x1f);
  CHECK(said->segment == row.id);
  CHECK(said->layer == 7);
  const std::string id = "abababababababababababababababab";
  for (const std::string& other :
       {std::string(), name + "-1", name + "x", name + "-", "0" + name, "4000" + name.substr(4),
        "001F" + name.substr(4), "+01f" + name.substr(4), name.substr(5), "projection-" + name,
        "001f-" + id + "-1234-11", "001f-" + id + "-1234--7", "001f-" + id + "-1234-11--7",
        "001f-" + id.substr(1) + "-1234-11-7", "001f-" + id + "-1234-11-4294967296"}) {
    CAPTURE(other);
    CHECK_FALSE(object_in(other));
  }
}

TEST_CASE("a quarantine key gives its segment back, other keys give none", "[unit][catalog]") {
  CHECK(quarantined_segment(quarantine_key(id_of(9))) == id_of(9));
  CHECK_FALSE(quarantined_segment(kCatalogFormatKey));
  CHECK_FALSE(quarantined_segment(""));
  CHECK_FALSE(quarantined_segment("quarantine/short"));
  CHECK_FALSE(quarantined_segment(quarantine_key(id_of(9)) + "x"));
}
