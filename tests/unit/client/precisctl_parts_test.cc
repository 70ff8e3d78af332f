// precisctl's parsing of words, and printing of numbers.
#include <catch2/catch.hpp>
#include <map>

#include "client/cli/json.h"
#include "client/cli/outcome.h"
#include "client/cli/render.h"
#include "client/cli/table.h"

namespace {

using namespace precis;
using namespace precis::cli;

TEST_CASE("columns stand straight and control characters reach no terminal", "[client]") {
  Table table({{"NAME"}, {"N", true}});
  table.add({"caf\xc3\xa9", "1"});
  table.add({"a\x1b[2J\nb", "1000"});
  CHECK(table.text() ==
        "NAME                  N\n"
        "caf\xc3\xa9                  1\n"
        "a\\u001b[2J\\u000ab  1000\n");
}

TEST_CASE("what others named reaches no terminal as it is, in whatever form it is shown",
          "[client]") {
  const std::string evil = "a\x1b]0;owned\x07\xe2\x80\xae\xc2\x9b\x9b";
  const auto harmless = [](const std::string& text) {
    INFO(text);
    for (const char* bad : {"\x1b", "\x07", "\xe2\x80\xae", "\xc2\x9b", "a\x9b", "\x7f"}) {
      CHECK(text.find(bad) == std::string::npos);
    }
  };
  msg::ModelRow model;
  model.model.name = model.model.revision = evil;
  msg::SegmentInfo segment;
  segment.model = model.fingerprint;
  segment.adapter = segment.recipe = segment.preset = evil;
  msg::SessionRow session;
  session.name = evil;
  msg::ProfileRow profile;
  profile.name = profile.kind = profile.scorer = profile.text_digest = evil;
  msg::BudgetRow budget;
  budget.scope = budget.recipe = evil;
  msg::ServerStatus status;
  status.server = status.tenant = status.data_dir = status.transport = status.device = evil;
  status.rdma = status.exposed = evil;
  const msg::Stats stats{{{evil, 1.0, evil}}};
  harmless(models_text({&model, 1}));
  harmless(segments_text({&segment, 1}, {&model, 1}));
  harmless(segment_text(segment, {&model, 1}));
  harmless(sessions_text({&session, 1}));
  harmless(session_text(session));
  harmless(profiles_text({&profile, 1}, {&model, 1}));
  harmless(profile_text(profile, {&model, 1}));
  harmless(budgets_text({{budget}, budget}, {}));
  harmless(status_text(status));
  harmless(stats_text(stats));
  const Json json{{"a", evil + "\x7f"}};
  harmless(json_text(json));
  // A program that reads it gets the name unchanged, except for the byte that is not UTF-8.
  CHECK(Json::parse(json_text(json))["a"] == evil.substr(0, evil.size() - 1) + "\xef\xbf\xbd\x7f");
}

TEST_CASE("status shows the RDMA device in words, and a service that says nothing as such",
          "[client]") {
  msg::ServerStatus status;
  CHECK_THAT(status_text(status), Catch::Contains("rdma            -\n"));
  status.rdma = "rc_mlx5 on mlx5_0:1, host memory";
  CHECK_THAT(status_text(status), Catch::Contains("rdma            " + status.rdma + "\n"));
  CHECK(to_json(status)["rdma"] == status.rdma);
}

TEST_CASE("status says that puts are being refused, and what to do", "[client]") {
  msg::ServerStatus status;
  status.disk_free_bytes = 26'000'000;
  status.disk_min_free_bytes = 24'500'000;
  CHECK_THAT(status_text(status), !Catch::Contains("REFUSED"));
  CHECK(to_json(status)["disk_low"] == false);
  status.disk_low = true;  // the refused put is larger than the remaining space
  CHECK_THAT(status_text(status), Catch::Contains("PUTS ARE BEING REFUSED: remove or trim"));
  CHECK(to_json(status)["disk_low"] == true);
}

TEST_CASE("status says how a service is exposed, and nothing where it is not", "[client]") {
  msg::ServerStatus status;
  CHECK_THAT(status_text(status), !Catch::Contains("exposed"));
  CHECK(to_json(status)["exposed"] == "");
  status.exposed = "K and V travel in the clear";
  CHECK_THAT(status_text(status), Catch::Contains("exposed         " + status.exposed + "\n"));
  CHECK(to_json(status)["exposed"] == status.exposed);
}

TEST_CASE("every outcome has an exit code, and the help names it", "[client]") {
  const std::map<StatusCode, int> codes = {
      {StatusCode::kOk, 0},          {StatusCode::kCorruption, 1},
      {StatusCode::kOutOfSpace, 1},  {StatusCode::kVersionMismatch, 1},
      {StatusCode::kUnsupported, 1}, {StatusCode::kInternal, 1},
      {StatusCode::kNotFound, 3},    {StatusCode::kInvalidArgument, 2},
      {StatusCode::kUnavailable, 4}, {StatusCode::kTimedOut, 4},
      {StatusCode::kConflict, 6},    {StatusCode::kPermissionDenied, 5},
      {StatusCode::kRejected, 7},    {StatusCode::kCanceled, 130}};
  CHECK(codes.size() == kStatusCodeMax + 1u);
  for (const auto& [status, code] : codes) {
    CHECK(exit_code(Status(status, "")) == code);
    CHECK_THAT(kExitCodes, Catch::Contains(std::to_string(code)));
  }
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
  CHECK(json["out_of_service"] == false);
  segment.plan = Plan{2, 1, {3, 4}};
  CHECK(to_json(segment)["plan"] == Json::parse("[[3], [4]]"));
  const msg::Stats stats{{{"precis_a_bytes", 3.0, "whole"}, {"precis_b_ratio", 0.5, "not"}}};
  CHECK(to_json(stats).dump() == R"({"precis_a_bytes":3,"precis_b_ratio":0.5})");
}

}  // namespace
