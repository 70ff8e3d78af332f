// Tenants of a running precisd: added, changed and removed by an admin, over restarts and crashes.
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/operated_service.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

constexpr std::uint32_t kSeed = 20261126, kTokens = 100;
constexpr char kOps[] = "[[tenant]]\nname = \"ops\"\ntoken = \"boss\"\nrole = \"admin\"\n";
constexpr char kRed[] = "[[tenant]]\nname = \"red\"\ntoken = \"first\"\n";

ConnectOptions as(const std::string& tenant, const std::string& token) {
  ConnectOptions options = only_once();
  options.tenant = tenant;
  options.token = token;
  return options;
}

class TenantsFixture {
 protected:
  TenantsFixture() { start(std::string(kOps) + kRed); }

  void start(const std::string& config) {
    const std::string file = dir.path("precisd.toml");
    std::ofstream(file) << config;
    service.emplace(dir, std::vector<std::string>{"--config", file});
  }
  std::shared_ptr<Client> connect(const std::string& tenant, const std::string& token) const {
    return service->connect(as(tenant, token));
  }
  StatusCode login(const std::string& tenant, const std::string& token) const {
    return Client::connect(service->address(), as(tenant, token)).status().code();
  }
  Ran ctl(std::vector<std::string> words, const std::string& tenant = "ops",
          const std::string& token = "boss") const {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", service->address(), "--tenant",
                                 tenant, "--token", token});
    return run(words);
  }
  json told(std::vector<std::string> words) const {
    words.emplace_back("--json");
    const Ran ran = ctl(std::move(words));
    INFO(ran.err);
    REQUIRE(ran.exit_code == 0);
    return json::parse(ran.out);
  }
  // Adds a tenant and returns its token.
  std::string add(const std::string& name, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"tenant", "add", name});
    return told(std::move(options))["token"];
  }
  Result<msg::SegmentInfo> put(Client& client) {
    const Model model = client.register_model(tiny_model()).value();
    const Kv kv = random_kv(random, model.spec, 0, kTokens);
    return put_all(client, model, random_tokens(random, kTokens), kv, keep_most());
  }

  TempDir dir;
  std::optional<ServiceProcess> service;
  std::mt19937 random{kSeed};
};

TEST_CASE_METHOD(TenantsFixture, "a tenant that an admin adds is admitted, over every restart",
                 "[integration]") {
  const std::string token = add("blue", {"--weight", "3", "--max-disk", "1GiB"});
  CHECK(token.size() == 64);
  CHECK(login("blue", token) == StatusCode::kOk);
  CHECK(login("blue", "guess") == StatusCode::kPermissionDenied);
  CHECK(login("blue", "") == StatusCode::kPermissionDenied);
  REQUIRE(put(*connect("blue", token)).ok());
  REQUIRE(service->kill() == -SIGKILL);
  start(std::string(kOps) + kRed);
  CHECK(login("blue", token) == StatusCode::kOk);
  CHECK(service->stop() == 0);
  start(std::string(kOps) + kRed);
  const json blue = told({"tenant", "show", "blue"});
  CHECK(blue["role"] == "writer");
  CHECK(blue["weight"] == 3);
  CHECK(blue["max_disk_bytes"] == 1u << 30);
  CHECK(blue["configured"] == false);
  CHECK(blue["tokens"] == 1);
  CHECK(blue["segments"] == 1);
  CHECK(blue["stored_bytes"] > 0);
  const json all = told({"tenant", "ls"})["tenants"];
  REQUIRE(all.size() == 3);
  CHECK(all[0] == blue);
  CHECK(all[1]["name"] == "ops");
  CHECK(all[1]["configured"] == true);
  CHECK(all.dump().find(token) == std::string::npos);
  CHECK_THAT(ctl({"tenant", "ls"}).out, Contains("blue") && Contains("configuration"));
  CHECK_THAT(content_of(dir.path("precisd.toml")), !Contains("blue"));
}

TEST_CASE_METHOD(TenantsFixture,
                 "two tokens are valid at a time, and a dropped one ends its clients",
                 "[integration]") {
  const std::string first = add("blue");
  const auto with_first = connect("blue", first);
  const std::string second = told({"tenant", "rotate", "blue"})["token"];
  CHECK(second != first);
  const auto with_second = connect("blue", second);
  const Model model = with_second->register_model(tiny_model()).value();
  const auto open = with_second->begin_put(model, std::vector<TokenId>(kTokens, 1));
  REQUIRE(open.ok());
  CHECK(with_first->status().ok());
  const json dropped = told({"tenant", "rotate", "blue", "--drop-old"});
  CHECK(dropped["token"] == "");
  CHECK(dropped["tenant"]["tokens"] == 1);
  CHECK_FALSE(with_first->status().ok());
  CHECK(login("blue", first) == StatusCode::kPermissionDenied);
  CHECK(login("blue", second) == StatusCode::kOk);
  CHECK(with_second->status().ok());
  CHECK(stat(*with_second, "precis_open_puts") == 1);  // its connection has stayed

  // A third token ends the first of them.
  const std::string third = told({"tenant", "rotate", "blue"})["token"];
  const std::string fourth = told({"tenant", "rotate", "blue"})["token"];
  CHECK(login("blue", second) == StatusCode::kPermissionDenied);
  CHECK(login("blue", third) == StatusCode::kOk);
  CHECK(login("blue", fourth) == StatusCode::kOk);
  REQUIRE(service->kill() == -SIGKILL);
  start(std::string(kOps) + kRed);
  CHECK(login("blue", second) == StatusCode::kPermissionDenied);
  CHECK(login("blue", fourth) == StatusCode::kOk);
}

TEST_CASE_METHOD(TenantsFixture, "a reader reads what a writer of its tenant stored, and no more",
                 "[integration]") {
  const std::string token = add("blue");
  const auto writer = connect("blue", token);
  const Model model = writer->register_model(tiny_model()).value();
  const auto tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  const auto stored = put_all(*writer, model, tokens, kv, keep_most());
  REQUIRE((stored.ok() && writer->open_session("talk", 600).ok()));
  told({"tenant", "set", "blue", "--role", "reader"});
  CHECK_FALSE(writer->status().ok());  // closed, because its role has changed

  const auto reader = connect("blue", token);
  REQUIRE(reader->register_model(tiny_model()).ok());  // the model is registered already
  CHECK(rows_are_of(read_all(*reader, model, tokens).value(), {&kv}));
  CHECK(reader->segments().value().size() == 1);
  ModelSpec unknown = tiny_model();
  unknown.name = "unknown";
  for (const Status& refused :
       {reader->begin_put(model, random_tokens(random, kTokens)).status(),
        reader->register_model(unknown).status(),
        reader->remove_segment(stored->id, false).status(),
        reader->trim_segment(stored->id, Budget::ratio_ppm(100'000)).status(),
        reader->set_retention({stored->id, 80, {}}).status(), reader->set_budget({}).status(),
        reader->open_session("chat", {}).status(),
        reader->lookup(model, tokens, {.hints = {.priority = 100}}).status(),
        reader->tenants().status()}) {
    CHECK(refused.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(refused.message(), Contains("tenant 'blue' has the role reader"));
  }
  CHECK(reader->lookup(model, tokens, {.session = "talk"}).value());  // the session is not renewed
  CHECK(stat(*reader, "precis_puts_begun_total") == 1);
  CHECK(stat(*reader, "precis_staged_bytes") == 0);
}

TEST_CASE_METHOD(TenantsFixture, "only an admin manages tenants", "[integration]") {
  add("blue");
  const std::vector<std::vector<std::string>> commands = {
      {"add", "green"},   {"ls"},        {"show", "blue"}, {"set", "blue", "--weight", "2"},
      {"rotate", "blue"}, {"rm", "blue"}};
  for (std::vector<std::string> words : commands) {
    words.insert(words.begin(), "tenant");
    const Ran ran = ctl(words, "red", "first");
    CHECK(ran.exit_code == 5);
    CHECK_THAT(ran.err,
               Contains("tenant 'red' has the role writer") && Contains("role = \"admin\""));
  }
  CHECK(told({"tenant", "ls"})["tenants"].size() == 3);
  // A stored tenant can be an admin, too, but it cannot lock itself out.
  const std::string token = add("deputy", {"--role", "admin"});
  const auto deputy = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "tenant");
    return ctl(std::move(words), "deputy", token);
  };
  CHECK(deputy({"set", "blue", "--weight", "2"}).exit_code == 0);
  CHECK_THAT(deputy({"rm", "deputy"}).err, Contains("a tenant cannot remove itself"));
  CHECK_THAT(deputy({"set", "deputy", "--role", "reader"}).err,
             Contains("a tenant cannot change its own role"));
  REQUIRE(deputy({"rotate", "deputy"}).exit_code == 0);
  const Ran own = deputy({"rotate", "deputy", "--drop-old"});
  CHECK(own.exit_code == 6);
  CHECK_THAT(own.err, Contains("this connection uses the token that would end"));
  CHECK(login("deputy", token) == StatusCode::kOk);
}

TEST_CASE_METHOD(TenantsFixture, "wrong tenants are refused with what is wrong, and change nothing",
                 "[integration]") {
  const std::string token = add("blue");
  const json before = told({"tenant", "ls"});
  const auto refused = [&](std::vector<std::string> words, int exit_code, const std::string& why) {
    words.insert(words.begin(), "tenant");
    const Ran ran = ctl(words);
    CAPTURE(words, ran.err);
    CHECK(ran.exit_code == exit_code);
    CHECK_THAT(ran.err, Contains(why));
  };
  refused({"add", "blue"}, 6, "there is a tenant 'blue' already");
  refused({"add", "red"}, 6, "tenant 'red' is in the configuration");
  refused({"set", "red", "--weight", "2"}, 6, "tenant 'red' is in the configuration");
  refused({"rotate", "ops"}, 6, "tenant 'ops' is in the configuration");
  refused({"rm", "red"}, 6, "tenant 'red' is in the configuration");
  refused({"add", "green", "--weight", "0"}, 2, "weight 0, must be in [1, 1000]");
  refused({"set", "blue", "--weight", "1001"}, 2, "weight 1001, must be in [1, 1000]");
  refused({"add", "green", "--role", "boss"}, 2, "boss");
  refused({"add", ""}, 2, "must have 1 to 256 bytes");
  refused({"add", std::string(300, 'x')}, 2, "name");
  refused({"add", "a\nb"}, 2, "name");
  refused({"set", "blue"}, 2, "give what is to change");
  refused({"set", "blue", "--max-disk", "much"}, 2, "--max-disk is 'much'");
  for (const char* command : {"show", "rotate", "rm"}) {
    refused({command, "green"}, 3, "there is no tenant 'green'");
  }
  refused({"set", "green", "--weight", "2"}, 3, "there is no tenant 'green'");
  // The service also refuses values that precisctl refuses by itself.
  const auto ops = connect("ops", "boss");
  msg::AddTenant wrong;
  wrong.name = "green";
  wrong.role = "boss";
  CHECK_THAT(ops->add_tenant(wrong).status().message(),
             Contains("the role is 'boss', must be reader, writer or admin"));
  CHECK(told({"tenant", "ls"})["tenants"].size() == before["tenants"].size());
  CHECK(told({"tenant", "show", "blue"})["weight"] == 1);
  CHECK(login("blue", token) == StatusCode::kOk);
}

TEST_CASE_METHOD(TenantsFixture, "a tenant's quotas hold at once, and others do not feel them",
                 "[integration]") {
  const std::string token = add("blue");
  const auto blue = connect("blue", token);
  const Model model = blue->register_model(tiny_model()).value();
  const auto begin = [&] { return blue->begin_put(model, random_tokens(random, kTokens)); };
  const auto set = [&](const std::string& option, const std::string& value) {
    told({"tenant", "set", "blue", option, value});
  };
  {
    const auto first = begin();
    REQUIRE(first.ok());
    set("--max-puts", "1");
    const Status second = begin().status();
    CHECK(second.code() == StatusCode::kRejected);
    CHECK_THAT(second.message(), Contains("tenant 'blue' has 1 puts in progress, its own limit"));
    const json row = told({"tenant", "show", "blue"});
    CHECK(row["puts"] == 1);
    CHECK(row["memory_bytes"] > 0);
    CHECK(row["connections"] == 1);
  }
  set("--max-puts", "0");
  set("--max-memory", "1MiB");
  const auto path = random_tokens(random, kTokens);
  const auto stored =
      put_all(*blue, model, path, random_kv(random, model.spec, 0, kTokens), keep_most());
  REQUIRE(stored.ok());
  const std::uint64_t kept = told({"tenant", "show", "blue"})["memory_bytes"];
  CHECK(kept > 0);
  set("--max-memory", std::to_string(kept / 2) + "B");
  while (told({"tenant", "show", "blue"})["memory_bytes"] > kept / 2) {  // the store writes some
    REQUIRE(read_all(*blue, model, path).ok());
  }
  REQUIRE(blue->remove_segment(stored->id, false).ok());
  set("--max-memory", "1KiB");
  const Status memory = begin().status();
  CHECK(memory.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(memory.message(), Contains("its 1024 B (max_memory_bytes)"));
  set("--max-memory", "0");
  set("--max-disk", "1KiB");
  const Status disk = begin().status();
  CHECK(disk.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(disk.message(), Contains("max_disk_bytes of tenant 'blue'"));
  set("--max-disk", "0");
  CHECK(begin().ok());

  set("--max-requests", "1");
  Status rate;
  for (int request = 0; request < 1000 && rate.ok(); ++request) rate = blue->status().status();
  CHECK(rate.code() == StatusCode::kRejected);
  CHECK(rate.retry_after_ms() > 0);
  CHECK_THAT(rate.message(), Contains("max_requests_per_s"));
  const auto red = connect("red", "first");
  for (int request = 0; request < 100; ++request) REQUIRE(red->status().ok());
}

TEST_CASE_METHOD(TenantsFixture, "a disk limit below what is stored is set only if that is meant",
                 "[integration]") {
  const auto blue = connect("blue", add("blue"));
  REQUIRE(put(*blue).ok());
  const auto ops = connect("ops", "boss");
  const std::uint64_t stored = ops->tenant("blue")->stored_bytes;
  msg::ChangeTenant change;
  change.name = "blue";
  change.weight = 2;
  change.max_disk_bytes = stored;  // the service frees down to nine tenths of a limit
  const Status refused = ops->change_tenant(change).status();
  CHECK(refused.code() == StatusCode::kConflict);
  CHECK_THAT(refused.message(), Contains("stores " + std::to_string(stored) + " B") &&
                                    Contains("below_use") && Contains("--below-use"));
  CHECK(ops->tenant("blue")->weight == 1);  // nothing has changed
  CHECK(blue->segments().value().size() == 1);
  change.max_disk_bytes = 2 * stored;
  CHECK(ops->change_tenant(change)->max_disk_bytes == 2 * stored);
  CHECK(ops->tenant("blue")->stored_bytes == stored);
  change.max_disk_bytes = stored;
  change.below_use = true;
  CHECK(ops->change_tenant(change)->max_disk_bytes == stored);
  while (ops->tenant("blue")->stored_bytes >= stored) std::this_thread::yield();
}

TEST_CASE_METHOD(TenantsFixture, "a tenant that is added to what is stored gets no lower limit",
                 "[integration]") {
  REQUIRE(put(*connect("red", "first")).ok());
  CHECK(service->stop() == 0);
  start(kOps);  // red is in the configuration no more, and its segments stay
  const Ran refused = ctl({"tenant", "add", "red", "--max-disk", "1KiB"});
  CHECK(refused.exit_code == 6);
  CHECK_THAT(refused.err, Contains("tenant 'red' stores"));
  add("red");
  CHECK(told({"tenant", "show", "red"})["stored_bytes"] > 1024);
}

TEST_CASE_METHOD(TenantsFixture, "the hits of a tenant and of its models are told apart",
                 "[integration]") {
  const auto blue = connect("blue", add("blue"));
  ModelSpec spec = tiny_model();
  const Model first = blue->register_model(spec).value();
  spec.name = "second";
  const Model second = blue->register_model(spec).value();
  const auto tokens = random_tokens(random, kTokens);
  for (const Model& model : {first, second}) {
    const Kv kv = random_kv(random, model.spec, 0, kTokens);
    REQUIRE(put_all(*blue, model, tokens, kv, keep_most()).ok());
  }
  REQUIRE(blue->lookup(first, tokens).ok());
  REQUIRE(blue->lookup(first, tokens).ok());
  REQUIRE(blue->lookup(second, tokens).ok());
  REQUIRE(blue->lookup(second, random_tokens(random, kTokens)).ok());  // a miss
  std::map<std::string, std::uint64_t> hits;
  const auto models = blue->models().value();
  for (const msg::ModelRow& row : models) {
    hits[row.model.name] = row.hits;
    CHECK(row.hit_tokens == row.hits * kTokens);
  }
  CHECK(hits == std::map<std::string, std::uint64_t>{{first.spec.name, 2}, {"second", 1}});
  const json row = told({"tenant", "show", "blue"});
  CHECK(row["hits"] == 3);
  CHECK(row["hit_tokens"] == 3 * kTokens);
  CHECK(told({"tenant", "show", "red"})["hits"] == 0);
}

TEST_CASE_METHOD(TenantsFixture, "a tenant is removed when it has no segments, or with them",
                 "[integration]") {
  const std::string token = add("blue");
  const auto blue = connect("blue", token);
  REQUIRE(put(*blue).ok());
  REQUIRE(put(*blue).ok());
  const SegmentId tip = put(*blue).value().id;
  REQUIRE(blue->open_session("chat", {}).ok());
  REQUIRE(blue->advance_session("chat", tip).ok());
  REQUIRE(blue->pin_session("chat", true).ok());
  const Ran kept = ctl({"tenant", "rm", "blue"});
  CHECK(kept.exit_code == 6);
  CHECK_THAT(kept.err, Contains("tenant 'blue' has 3 segments") && Contains("--purge"));
  CHECK(blue->status().ok());
  CHECK_THAT(ctl({"tenant", "rm", "blue", "--purge"}).err, Contains("--yes"));  // nobody to ask
  const json removed = told({"tenant", "rm", "blue", "--purge", "--yes"});
  CHECK(removed["segments"] == 3);
  CHECK(removed["bytes"] > 0);
  CHECK_FALSE(blue->status().ok());
  CHECK(login("blue", token) == StatusCode::kPermissionDenied);
  // Another tenant of that name finds nothing.
  const auto other = connect("blue", add("blue"));
  CHECK(other->segments().value().empty());
  CHECK(other->models().value().empty());
  CHECK(other->sessions().value().empty());
  REQUIRE(service->kill() == -SIGKILL);
  start(std::string(kOps) + kRed);
  CHECK(login("blue", token) == StatusCode::kPermissionDenied);
}

TEST_CASE_METHOD(TenantsFixture, "a configured tenant takes the place of a stored one of its name",
                 "[integration]") {
  const std::string token = add("blue");
  CHECK(service->stop() == 0);
  start(std::string(kOps) + "[[tenant]]\nname = \"blue\"\ntoken = \"filed\"\n");
  CHECK(login("blue", token) == StatusCode::kPermissionDenied);
  CHECK(login("blue", "filed") == StatusCode::kOk);
  CHECK(told({"tenant", "show", "blue"})["configured"] == true);
  told({"tenant", "rm", "blue"});  // the stored row
  CHECK(ctl({"tenant", "rm", "blue"}).exit_code == 6);
  CHECK(login("blue", "filed") == StatusCode::kOk);
}

TEST_CASE_METHOD(TenantsFixture,
                 "stored tenants keep a service closed whose file has none any more",
                 "[integration]") {
  const std::string token = add("blue");
  CHECK(service->stop() == 0);
  start("");
  CHECK(login("", "") == StatusCode::kPermissionDenied);
  CHECK(login("blue", token) == StatusCode::kOk);
}

TEST_CASE("no token is in the log, the audit log or a list, and a reload keeps stored tenants",
          "[integration]") {
  const TempDir dir;
  const std::string config = "audit_log = \"" + dir.path("audit") + "\"\n" + kOps;
  OperatedService service(dir, config);
  const auto ops = Client::connect(service.address(), as("ops", "boss")).value();
  msg::AddTenant request;
  request.name = "blue";
  const std::string first = ops->add_tenant(request).value().token;
  const auto blue = Client::connect(service.address(), as("blue", first)).value();
  const std::string second = ops->rotate_token("blue", false).value().token;
  service.write_config(config + kRed);
  service.reload();
  CHECK(blue->status().ok());  // not disconnected
  CHECK(Client::connect(service.address(), as("blue", second)).ok());
  CHECK(ops->tenants().value().size() == 3);
  REQUIRE(ops->remove_tenant("blue", false).ok());
  CHECK(ops->tenant("blue").status().code() == StatusCode::kNotFound);
  service.stop();
  const std::string log = service.log(), audit = content_of(dir.path("audit"));
  CHECK_THAT(log, Contains("tenant added") && Contains("new token of a tenant") &&
                      Contains("tenant removed"));
  CHECK_THAT(audit, Contains("\"AddTenant\"") && Contains("\"RotateToken\"") &&
                        Contains("\"RemoveTenant\""));
  for (const std::string& token : {first, second}) {
    CHECK(log.find(token) == std::string::npos);
    CHECK(audit.find(token) == std::string::npos);
  }
}

}  // namespace
