// What precisctl makes of words, and of numbers.
#include <catch2/catch.hpp>

#include "client/cli/files.h"
#include "client/cli/json.h"
#include "client/cli/render.h"
#include "client/cli/table.h"

namespace {

using namespace precis;
using namespace precis::cli;

TEST_CASE("a folder is no file to be read", "[client]") {
  const auto text = read_file("/tmp");
  REQUIRE(text.status().code() == StatusCode::kInvalidArgument);
  CHECK(text.status().message().find("Is a directory") != std::string::npos);
}

TEST_CASE("columns stand straight and control characters reach no terminal", "[client]") {
  Table table({{"NAME"}, {"N", true}});
  table.add({"caf\xc3\xa9", "1"});
  table.add({"a\x1b[2J\nb", "1000"});
  CHECK(table.text() ==
        "NAME        N\n"
        "caf\xc3\xa9        1\n"
        "a?[2J?b  1000\n");
}

TEST_CASE("numbers have units a person reads", "[client]") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1024) == "1.00 KiB");
  CHECK(bytes_text(20u << 20) == "20.0 MiB");
  CHECK(bytes_text(UINT64_MAX) == "16.0 EiB");
  CHECK(count_text(0) == "0");
  CHECK(count_text(999) == "999");
  CHECK(count_text(1000) == "1 000");
  CHECK(count_text(1234567) == "1 234 567");
  CHECK(counted(0, "segment") == "0 segments");
  CHECK(counted(1, "segment") == "1 segment");
  CHECK(counted(2000, "segment") == "2 000 segments");
  CHECK(duration_text(0.0005) == "500 us");
  CHECK(duration_text(0.25) == "250.0 ms");
  CHECK(duration_text(7200) == "2.0 h");
  CHECK(percent_text(1, 4) == "25.0%");
  CHECK(percent_text(1, 0) == "-");
  CHECK(when_text(0) == "-");
  CHECK(when_text(1) != "-");
}

TEST_CASE("JSON that is nested without end, or says odd things, is shown as the text it is",
          "[client]") {
  const std::string deep(1 << 20, '[');
  msg::ProfileRow row;
  row.scorer = GENERATE_COPY(deep + std::string(deep.size(), ']'), std::string(R"({"scorer":5})"),
                             std::string("{}"), std::string("no JSON"));
  row.json = row.scorer;
  CHECK_FALSE(to_json(row).dump().empty());
  CHECK(profiles_text({&row, 1}, {}).find(row.scorer) != std::string::npos);
}

TEST_CASE("JSON has raw numbers, full ids and null for what is not there", "[client]") {
  msg::SegmentInfo segment;
  segment.id.bytes.fill(0xab);
  segment.recipe = "{\"scorer\":\"knorm\"}";
  segment.budget = Budget::ratio_ppm(250'000);
  segment.stored_bytes = std::uint64_t{1} << 53;
  const Json json = to_json(segment);
  CHECK(json["id"] == segment.id.hex());
  CHECK(json["parent"].is_null());
  CHECK(json["recipe"]["scorer"] == "knorm");
  CHECK(json["keep"]["value"] == 0.25);
  CHECK(json["parent_read"].is_null());
  CHECK(json["stored_bytes"] == std::uint64_t{1} << 53);
  CHECK_FALSE(json.contains("plan"));
  segment.plan = Plan{2, 1, {3, 4}};
  CHECK(to_json(segment)["plan"] == Json::parse("[[3], [4]]"));
  const msg::Stats stats{{{"precis_a_bytes", 3.0, "whole"}, {"precis_b_ratio", 0.5, "not"}}};
  CHECK(to_json(stats).dump() == R"({"precis_a_bytes":3,"precis_b_ratio":0.5})");
}

}  // namespace
