// precisctl's parsing of words, printing of numbers, and requests.
#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "client/cli/backup_commands.h"
#include "client/cli/budget_application.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/outcome.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "client/cli/tenant_commands.h"
#include "tests/unit/client/fake_server.h"

namespace {

using namespace precis;
using namespace precis::cli;
using namespace precis::testing;
using Catch::Matchers::Contains;

// Four layers of two KV heads.
msg::ModelRow small_model() {
  msg::ModelRow row;
  row.model.name = "test/small";
  row.model.num_layers = 4;
  row.model.num_q_heads = row.model.num_kv_heads = 2;
  row.model.head_dim = 64;
  return row;
}
msg::SegmentInfo of_tokens(std::uint32_t count) {
  msg::SegmentInfo segment;
  segment.end = count;
  return segment;
}

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
  const std::map<StatusCode, int> codes = {{StatusCode::kOk, 0},
                                           {StatusCode::kCorruption, 1},
                                           {StatusCode::kOutOfSpace, 1},
                                           {StatusCode::kVersionMismatch, 1},
                                           {StatusCode::kUnsupported, 1},
                                           {StatusCode::kInternal, 1},
                                           {StatusCode::kNotFound, 3},
                                           {StatusCode::kInvalidArgument, 2},
                                           {StatusCode::kUnavailable, 4},
                                           {StatusCode::kTimedOut, 4},
                                           {StatusCode::kMoved, 4},
                                           {StatusCode::kConflict, 6},
                                           {StatusCode::kPermissionDenied, 5},
                                           {StatusCode::kRejected, 7},
                                           {StatusCode::kCanceled, 130}};
  CHECK(codes.size() == kStatusCodeMax + 1u);
  for (const auto& [status, code] : codes) {
    CHECK(exit_code(Status(status, "")) == code);
    CHECK(parse_status_code(status_code_name(status)) == status);
    CHECK_THAT(kExitCodes, Catch::Contains(std::to_string(code)));
  }
}

TEST_CASE("an error of work in the background has its code, or is a bug", "[client]") {
  CHECK(failure("conflict", "x") == Status::conflict("x"));
  CHECK(failure("timed_out", "x") == Status::timed_out("x"));
  for (const char* unknown : {"", "ok", "newer_than_this_build"}) {
    CHECK(failure(unknown, "x") == Status::internal("x"));
  }
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    msg::BackupState state;
    state.name = "monday";
    state.state = "failed";
    state.started_unix_ms = 1;
    state.error = "the folder is gone";
    state.code = "not_found";
    self.reply(request.id, state);
  });
  std::string out;
  const auto client = server.connect().value();
  CHECK(make_backup({*client, out}, {}) == Status::not_found("the folder is gone"));
}

TEST_CASE("another application than the one that a change began is not taken for it", "[client]") {
  std::uint64_t number = 8;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    msg::BudgetApplication state;
    state.number = number;
    state.state = "done";
    state.dry_run = true;
    self.reply(request.id, state);
  });
  const auto client = server.connect().value();
  CHECK(wait_for_application(*client, 8).value().status.ok());
  const Status other = wait_for_application(*client, 7).status();
  CHECK(other.code() == StatusCode::kNotFound);
  CHECK_THAT(other.message(), Contains("application 8 began after application 7"));
  number = 0;
  CHECK_THAT(wait_for_application(*client, 7).status().message(),
             Contains("the service was restarted"));
}

TEST_CASE("a tenant's limit below its use is asked for by a flag of its own", "[client]") {
  msg::ChangeTenant asked;
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    asked = std::get<msg::ChangeTenant>(request.body);
    msg::TenantRow row;
    row.name = asked.name;
    row.hits = 1234;
    row.hit_tokens = 5;
    self.reply(request.id, row);
  });
  const auto client = server.connect().value();
  TenantChange change;
  change.name = "red";
  change.max_disk_bytes = 1;
  change.below_use = GENERATE(true, false);
  std::string out;
  REQUIRE(set_tenant({*client, out}, change).ok());
  CHECK(asked.max_disk_bytes == 1);
  CHECK(asked.below_use == change.below_use);
  CHECK_THAT(out, Contains("1 234 since the service started, of 5 tokens\n"));
}

TEST_CASE("a recipe with a table is short for people, and tables fit the terminal", "[client]") {
  Recipe with_table = parse_recipe("kvdiff").value();
  with_table.preset.clear();
  with_table.heads = HeadAllocator::kTable;
  with_table.layers = LayerAllocator::kTable;
  with_table.table = TableKind::kWeights;
  with_table.profile = "table-0123456789ab";
  msg::BudgetRow row;
  row.scope = "model test/small-and-with-a-long-name";
  row.recipe = canonical_recipe(with_table);
  row.keep = Budget::ratio_ppm(500'000);
  const auto widest = [](const std::string& text) {
    std::size_t most = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
    return most;
  };
  const std::string whole = budgets_text({{row}, row, {}, 0, {}}, {});
  CHECK_THAT(whole, Contains("kvdiff, " + with_table.profile + " "));
  CHECK(widest(whole) < 160);
  CHECK(widest(budgets_text({{row}, row, {}, 0, {}}, {}, 60)) <= 60 + 8u);  // ellipses
  CHECK(to_json(row)["recipe"] == row.recipe);
  CHECK(recipe_words("ada_keydiff(alpha=0.1)") == "ada_keydiff(alpha=0.1)");
  CHECK(recipe_words(R"({"scorer":"knorm","sinks":3})") == R"({"scorer":"knorm","sinks":3})");

  msg::SegmentInfo segment = of_tokens(10);
  Recipe stored = with_table;
  stored.profile = std::string(64, 'a');
  segment.recipe = canonical_recipe(stored);
  CHECK(recipe_text(segment) == "kvdiff, table " + stored.profile.substr(0, 12));
  segment.plan = Plan{1, 64, std::vector<std::uint32_t>(64, 5)};
  const std::string shown = segment_text(segment, {}, 80);
  CHECK_THAT(shown, Contains("H0  H1") && Contains("ALL") && !Contains("H63"));
  CHECK_THAT(segment_text(segment, {}), Contains("H63"));
}

TEST_CASE("a limit of all tenants is told beside what all of them store", "[client]") {
  msg::ServerStatus status;
  status.stored_bytes = 1 << 20;
  CHECK(stored_text(status, {}) == "1.00 MiB");
  status.max_disk_bytes = 8 << 20;
  CHECK(stored_text(status, {}) == "1.00 MiB of at most 8.00 MiB");
  CHECK(stored_text(status, {1 << 20, 8 << 20}) == "1.00 MiB of at most 8.00 MiB");
  CHECK(stored_text(status, {6 << 20, 8 << 20}) ==
        "1.00 MiB; all tenants 6.00 MiB of at most 8.00 MiB");
  CHECK(stored_text(status, {6 << 20, 9 << 20}) == "1.00 MiB of at most 8.00 MiB");  // its own
}

TEST_CASE("a model is told with its rope_scaling and its hits", "[client]") {
  msg::ModelRow row = small_model();
  row.model.rope_scaling = R"({"rope_type":"linear"})";
  row.hits = 12'345;
  row.hit_tokens = 6;
  const Json json = to_json(row);
  CHECK(json["rope_scaling"] == row.model.rope_scaling);
  CHECK(json["hits"] == 12'345);
  CHECK(json["hit_tokens"] == 6);
  CHECK(json["token_bytes"] == row.model.token_bytes());
  CHECK_THAT(models_text({&row, 1}), Contains("HITS") && Contains("12 345"));
  // Two models that differ in nothing else are told apart.
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    msg::Models models{{row, row}, {}};
    models.rows[1].model.rope_scaling = "";
    self.reply(request.id, models);
  });
  const Status both = find_model(*server.connect().value(), "test/small").status();
  CHECK_THAT(both.message(), Contains("rope_scaling \"\""));
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
