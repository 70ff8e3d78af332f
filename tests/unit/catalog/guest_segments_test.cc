#include "cachesvc/catalog/guest_segments.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "cachesvc/catalog/segment_tree.h"

namespace {

using namespace precis;

constexpr std::uint64_t kLate = 1'000'000'000'000'000, kSecond = 1'000'000'000;

SegmentRow row_of(const std::string& tenant, std::uint32_t number, std::uint64_t created = 1) {
  SegmentRow row;
  row.tenant = tenant;
  row.created_unix_ms = created;
  std::memcpy(row.id.bytes.data(), &number, sizeof number);
  return row;
}

std::size_t served(const GuestSegments& guests, const std::string& tenant, std::uint32_t from,
                   std::uint32_t to, std::uint64_t now_ns = 0) {
  std::size_t count = 0;
  for (; from < to; ++from) count += guests.find(tenant, row_of(tenant, from).id, now_ns) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("a segment of another node is served until its time, and stays for gets in progress",
          "[unit][catalog]") {
  GuestSegments guests;
  guests.keep(row_of("red", 1), 5 * kSecond, 0);
  const auto row = guests.find("red", row_of("red", 1).id, 0);
  REQUIRE(row);
  CHECK_FALSE(guests.find("blue", row->id, 0));
  CHECK_FALSE(guests.find("red", row->id, 5 * kSecond));
  CHECK(guests.knows(*row));
  guests.keep(row_of("red", 1), 9 * kSecond, 0);
  CHECK(guests.find("red", row->id, 8 * kSecond) == row);  // the same version is the same row
  CHECK(guests.end(9 * kSecond).empty());
  guests.keep(row_of("red", 1, 2), 9 * kSecond, 0);
  CHECK_FALSE(guests.knows(*row));
  CHECK(guests.end(200 * kSecond) == std::vector{row->id});
  CHECK(guests.end(200 * kSecond).empty());
}

TEST_CASE("the tenant with the most segments of other nodes makes room", "[unit][catalog]") {
  GuestSegments guests({100, 1u << 20});
  for (std::uint32_t n = 0; n < 150; ++n) guests.keep(row_of("many", n), kLate + n, 0);
  CHECK(served(guests, "many", 0, 50) == 0);
  CHECK(served(guests, "many", 50, 150) == 100);
  for (std::uint32_t n = 200; n < 230; ++n) guests.keep(row_of("few", n), kLate + n, 0);
  CHECK(served(guests, "few", 200, 230) == 30);
  CHECK(served(guests, "many", 80, 150) == 70);
  CHECK(guests.end(0).size() == 80);
  guests.keep(row_of("many", 0), kLate, 0);
  CHECK(guests.end(0).size() == 1);
}

TEST_CASE("segments whose time has passed make room first", "[unit][catalog]") {
  GuestSegments guests({10, 1u << 20});
  guests.keep(row_of("few", 1), 1 * kSecond, 0);
  for (std::uint32_t n = 2; n < 11; ++n) guests.keep(row_of("many", n), kLate, 0);
  guests.keep(row_of("many", 11), kLate, 2 * kSecond);
  CHECK(served(guests, "many", 2, 12) == 10);
}

TEST_CASE("the memory of segments of other nodes is bounded", "[unit][catalog]") {
  const std::uint64_t each = kept_bytes(row_of("red", 1));
  GuestSegments guests({1000, 10 * each});
  for (std::uint32_t n = 0; n < 50; ++n) guests.keep(row_of("red", n), kLate + n, 0);
  CHECK(served(guests, "red", 0, 50) == 10);
  CHECK(served(guests, "red", 40, 50) == 10);
}
