// The audit log: every change by an operator, and every refusal, with its author and address.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/operated_service.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

constexpr char kNoSegment[] = "0123456789abcdef0123456789abcdef";

// The log's lines, each of which is JSON and has every key.
std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line));
    for (const char* key :
         {"time", "tenant", "client", "from", "what", "of", "old", "new", "outcome", "why"}) {
      REQUIRE(lines.back().contains(key));
    }
  }
  return lines;
}

std::vector<json> those(const std::vector<json>& lines, const std::string& what) {
  std::vector<json> found;
  for (const json& line : lines) {
    if (line["what"] == what) found.push_back(line);
  }
  return found;
}

json only(const std::vector<json>& lines, const std::string& what) {
  const auto found = those(lines, what);
  CAPTURE(what);
  REQUIRE(found.size() == 1);
  return found.front();
}

class AuditFixture {
 protected:
  TempDir dir;
  const std::string path = dir.path("audit");
  const std::string config =
      "audit_log = \"" + path + "\"\n" + "[[tenant]]\nname = \"red\"\ntoken = \"secret\"\n";
  OperatedService service{dir, config};
  std::mt19937 random{20261125};

  static ConnectOptions red(const std::string& token = "secret") {
    ConnectOptions options;
    options.tenant = "red";
    options.token = token;
    options.client_name = "engine/7";
    return options;
  }
  std::shared_ptr<Client> connect() { return Client::connect(service.address(), red()).value(); }
  Ran ctl(std::vector<std::string> words) {
    words.insert(words.end(), {"--tenant", "red", "--token", "secret"});
    return service.ctl(words);
  }
  // The lines, once all are written.
  std::vector<json> audit() {
    service.stop();
    return lines_of(path);
  }
};

TEST_CASE_METHOD(AuditFixture, "the audit log has every change, with who, from where, old and new",
                 "[integration]") {
  const auto client = connect();
  const Model model = client->register_model(tiny_model()).value();
  CHECK(client->register_model(tiny_model()).ok());  // already registered
  const auto tokens = random_tokens(random, 300);
  PutOptions options;
  options.recipe = "ada_keydiff";
  const auto segment =
      put_all(*client, model, tokens, random_kv(random, model.spec, 0, 300), options).value();
  CHECK(client->open_session("chat", {}).ok());
  CHECK(client->open_session("chat", {}).ok());  // already open
  CHECK(client->open_session("chat", 60).ok());
  CHECK(client->open_session("chat", 60).ok());  // unchanged
  CHECK(client->open_session("chat", 0).ok());
  const std::vector<float> ones(model.spec.num_q_heads * model.spec.head_dim * 8, 1.0f);
  const std::vector<HeadsView> o_proj(
      model.spec.num_layers,
      HeadsView::packed(ones.data(), model.spec.num_q_heads, model.spec.head_dim, 8, Dtype::kF32));
  CHECK(client->register_model(tiny_model(), o_proj).ok());
  CHECK(client->register_model(tiny_model(), o_proj).ok());  // already pushed
  CHECK(client->advance_session("chat", segment.id).ok());
  REQUIRE(ctl({"budget", "set", "--keep", "0.2"}).exit_code == 0);
  REQUIRE(ctl({"budget", "set", "--keep", "0.1"}).exit_code == 0);
  REQUIRE(ctl({"session", "pin", "chat"}).exit_code == 0);
  REQUIRE(ctl({"session", "unpin", "chat"}).exit_code == 0);
  REQUIRE(ctl({"prefix", "trim", segment.id.hex(), "--keep", "0.1", "--dry-run"}).exit_code == 0);
  REQUIRE(ctl({"prefix", "trim", segment.id.hex(), "--keep", "0.1"}).exit_code == 0);
  const std::vector<std::string> set{"prefix", "set", segment.id.hex(), "--priority", "80"};
  REQUIRE(ctl(set).exit_code == 0);
  REQUIRE(ctl(set).exit_code == 0);  // unchanged
  REQUIRE(ctl({"session", "rm", "chat"}).exit_code == 0);
  REQUIRE(ctl({"prefix", "rm", segment.id.hex()}).exit_code == 0);
  REQUIRE(ctl({"prefix", "ls"}).exit_code == 0);

  const auto lines = audit();
  for (const json& line : lines) {
    CHECK(line["tenant"] == "red");
    CHECK_THAT(line["from"].get<std::string>(), Catch::Matchers::StartsWith("127.0.0.1:"));
    CHECK(line["outcome"] == "ok");
    CHECK(line["why"].is_null());
  }
  const json registered = only(lines, "RegisterModel");
  CHECK(registered["client"] == "engine/7");
  CHECK(registered["of"] == model.fingerprint.hex());
  CHECK(registered["old"].is_null());
  CHECK(registered["new"] == "test/tiny");
  const auto budgets = those(lines, "SetBudget");
  REQUIRE(budgets.size() == 2);
  CHECK(budgets[0]["old"] == "recipe unset, keep unset, limit unset");
  CHECK(budgets[0]["new"] == "recipe unset, keep 0.2, limit unset");
  CHECK(budgets[1]["old"] == "recipe unset, keep 0.2, limit unset");
  CHECK(budgets[1]["of"] == "all models");
  CHECK_THAT(budgets[1]["client"].get<std::string>(), Contains("precisctl/"));
  const auto opened = those(lines, "OpenSession");
  REQUIRE(opened.size() == 3);
  CHECK(opened[0]["of"] == "chat");
  CHECK(opened[0]["old"].is_null());
  CHECK(opened[0]["new"] == "made, no ttl");
  CHECK(opened[1]["old"] == "no ttl");
  CHECK(opened[1]["new"] == "ttl 60 s");
  CHECK(opened[2]["old"] == "ttl 60 s");
  CHECK(opened[2]["new"] == "no ttl");
  const auto pushed = those(lines, "PushProjection");
  REQUIRE(pushed.size() == model.spec.num_layers);
  CHECK(pushed[1]["of"] == "layer 1 of model " + model.fingerprint.hex());
  CHECK(pushed[1]["old"].is_null());
  CHECK(pushed[1]["new"].get<std::string>().size() == 64);
  CHECK(only(lines, "AdvanceSession")["new"] == segment.id.hex());
  CHECK(only(lines, "AdvanceSession")["old"] == "no tip");
  const auto pins = those(lines, "PinSession");
  REQUIRE(pins.size() == 2);
  CHECK(pins[0]["old"] == "not pinned");
  CHECK(pins[0]["new"] == "pinned");
  CHECK(pins[1]["new"] == "not pinned");
  const json trimmed = only(lines, "TrimPrefix");
  CHECK(trimmed["of"] == segment.id.hex());
  CHECK(trimmed["old"] == std::to_string(segment.entries) + " entries, " +
                              std::to_string(segment.stored_bytes) + " B");
  CHECK(trimmed["new"] != trimmed["old"]);
  const json retention = only(lines, "SetRetention");
  CHECK(retention["of"] == segment.id.hex());
  CHECK(retention["old"] == "priority 50, no ttl");
  CHECK(retention["new"] == "priority 80, no ttl");
  CHECK(only(lines, "RemoveSession")["old"] == segment.id.hex());
  CHECK_THAT(only(lines, "RemovePrefix")["old"].get<std::string>(),
             Catch::Matchers::StartsWith("1 segment, "));
  CHECK(only(lines, "RemovePrefix")["new"].is_null());
  CHECK(lines.size() == 13 + model.spec.num_layers);  // no line for puts or reads
}

TEST_CASE_METHOD(AuditFixture, "the audit log has every refusal: of a client, a token, a request",
                 "[integration]") {
  CHECK_FALSE(Client::connect(service.address(), red("guess")).ok());
  ConnectOptions stranger;
  stranger.client_name = "nobody/1";
  CHECK_FALSE(Client::connect(service.address(), stranger).ok());
  {
    const auto client = connect();
    CHECK_FALSE(client->remove_session("none").ok());
    const Model model = client->register_model(tiny_model()).value();
    PutOptions options;
    options.recipe = "no_such_recipe";
    CHECK_FALSE(client->begin_put(model, random_tokens(random, 100), options).ok());
    msg::SetBudget change;
    change.recipe = "no_such_recipe";
    CHECK_FALSE(client->set_budget(change).ok());
    CHECK_FALSE(client->session("none").ok());  // an answer, not a refusal
    const SegmentId nothing = parse_segment_id(kNoSegment).value();
    CHECK_FALSE(client->remove_segment(nothing, false).ok());
    CHECK_FALSE(client->trim_segment(nothing, Budget::ratio(0.5).value()).ok());
    CHECK_FALSE(client->add_profile(R"({"version": 7, "name": "learnt"})").ok());
  }
  const auto lines = audit();
  const auto refused = those(lines, "Connect");
  REQUIRE(refused.size() == 2);
  CHECK(refused[0]["tenant"] == "red");
  CHECK(refused[0]["client"] == "engine/7");
  CHECK(refused[0]["outcome"] == "permission_denied");
  CHECK_THAT(refused[0]["why"].get<std::string>(), Contains("not admitted with this token"));
  CHECK(refused[1]["client"] == "nobody/1");
  CHECK(refused[1]["tenant"] == "default");  // the default, as it named none
  CHECK(only(lines, "RemoveSession")["outcome"] == "not_found");
  CHECK(only(lines, "BeginPut")["outcome"] == "invalid_argument");
  CHECK(only(lines, "SetBudget")["outcome"] == "invalid_argument");
  CHECK_THAT(only(lines, "SetBudget")["why"].get<std::string>(), Contains("no_such_recipe"));
  CHECK(only(lines, "RemoveSession")["of"] == "none");
  CHECK(only(lines, "SetBudget")["of"] == "all models");
  CHECK(only(lines, "RemovePrefix")["of"] == kNoSegment);
  CHECK(only(lines, "TrimPrefix")["of"] == kNoSegment);
  CHECK(only(lines, "AddProfile")["of"] == "learnt");
  CHECK(only(lines, "RegisterModel")["outcome"] == "ok");
  CHECK(lines.size() == 9);
  for (const json& line : lines) CHECK_THAT(line.dump(), !Contains("guess") && !Contains("secret"));
}

TEST_CASE_METHOD(AuditFixture, "who repeats what is refused fills no disk with the audit log",
                 "[integration]") {
  constexpr std::size_t kTimes = 500;
  ConnectOptions stranger = red("guess");
  stranger.retry = false;
  for (std::size_t i = 0; i < kTimes; ++i) {
    CHECK_FALSE(Client::connect(service.address(), stranger).ok());
  }
  const auto lines = audit();
  const auto refused = those(lines, "Connect");
  CHECK(refused.size() < kTimes / 2);  // eight each for wrong and delayed, and a sum
  std::size_t counted = 0;
  for (const json& line : refused) {
    const std::string why = line["why"];
    const bool more = why.starts_with("and ");
    CHECK(line["from"].get<std::string>().starts_with("127.0.0.1"));
    counted += more ? std::stoul(why.substr(4)) : 1;
  }
  CHECK(counted == kTimes);
}

TEST_CASE_METHOD(AuditFixture, "the audit log has what a reload changed, and one that was refused",
                 "[integration]") {
  service.write_config(config + "[[tenant]]\nname = \"blue\"\n");
  service.reload();
  service.write_config("max_puts = 3\n" + config);
  service.reload();
  service.write_config("max_puts = 0\n");
  service.reload();
  const auto reloads = those(audit(), "Reload");
  REQUIRE(reloads.size() == 4);
  CHECK(reloads[0]["of"] == "tenant blue");
  CHECK(reloads[0]["old"] == "not there");
  CHECK(reloads[1]["of"] == "max_puts");
  CHECK(reloads[1]["old"] == "1024");
  CHECK(reloads[1]["new"] == "3");
  CHECK(reloads[2]["new"] == "not there");
  CHECK(reloads[3]["outcome"] == "invalid_argument");
  CHECK(reloads[3]["from"] == "SIGHUP");
}

TEST_CASE_METHOD(AuditFixture, "the audit log is the owner's alone, and is rotated by SIGHUP",
                 "[integration]") {
  struct stat file {};
  REQUIRE(::stat(path.c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0600);
  REQUIRE(ctl({"budget", "set", "--keep", "0.2"}).exit_code == 0);
  std::filesystem::rename(path, path + ".1");
  service.reload();
  REQUIRE(ctl({"budget", "set", "--keep", "0.3"}).exit_code == 0);
  CHECK(only(audit(), "SetBudget")["new"] == "recipe unset, keep 0.3, limit unset");
  CHECK(only(lines_of(path + ".1"), "SetBudget")["new"] == "recipe unset, keep 0.2, limit unset");
}

TEST_CASE("a repair by fsck is told from other removals by the name of its client",
          "[integration]") {
  const TempDir dir;
  OperatedService service(dir, "log_level = \"debug\"\n");
  REQUIRE(service.ctl({"fsck", "--repair"}).exit_code == 0);
  REQUIRE(service.ctl({"fsck"}).exit_code == 0);
  service.stop();
  const std::string log = service.log();
  const std::size_t repair = log.find(" fsck --repair\" from=");
  REQUIRE(repair != std::string::npos);
  CHECK_THAT(log.substr(repair), Contains("client connected client=precisctl/"));  // the second
}

TEST_CASE_METHOD(AuditFixture, "what changes nothing has no line in the audit log",
                 "[integration]") {
  for (int i = 0; i < 3; ++i) REQUIRE(ctl({"budget", "set", "--keep", "0.2"}).exit_code == 0);
  CHECK(only(audit(), "SetBudget")["new"] == "recipe unset, keep 0.2, limit unset");
}

TEST_CASE("no audit log is kept where none is asked for, and one may go to stderr",
          "[integration]") {
  const TempDir dir;
  const auto log = [&](const std::string& config, const std::string& keep) {
    std::filesystem::remove(dir.path("notify"));
    OperatedService service(dir, config);
    CHECK(service.ctl({"budget", "set", "--keep", keep}).exit_code == 0);
    service.stop();
    return service.log();
  };
  CHECK_THAT(log("", "0.2"), !Contains("\"what\""));
  CHECK_THAT(log("audit_log = \"stderr\"\n", "0.3"), Contains("\"what\": \"SetBudget\""));
  std::ofstream(dir.path("bad.toml")) << "audit_log = \"/dev/null\"\n";
  const Ran ran = run(precisd_command(dir.path("other"), {"--config", dir.path("bad.toml")}));
  CHECK(ran.exit_code == 1);
  CHECK_THAT(ran.err, Contains("audit_log /dev/null is not a regular file"));
}

}  // namespace
