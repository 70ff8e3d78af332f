// precisctl as scripts use it: exit codes and JSON; and as people do: tables and advice.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "precis/profile.h"
#include "tests/integration/precisctl_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

class CommandFixture : protected PrecisctlFixture {
 protected:
  msg::SegmentInfo store(std::uint32_t num_tokens) {
    PutOptions options;
    options.recipe = "ada_keydiff";
    options.keep = Budget::ratio_ppm(250'000);
    return PrecisctlFixture::store(num_tokens, options);
  }
};

TEST_CASE_METHOD(CommandFixture, "status, models and stats are told", "[integration]") {
  store(200);
  const json status = ctl_json({"status"});
  CHECK(status["segments"] == 1);
  CHECK(status["models"] == 1);
  CHECK(status["tenant"] == "default");
  CHECK(status["lost_changes"] == 0);
  CHECK_FALSE(status.contains("recovery"));  // each field is there once
  const json models = ctl_json({"model", "ls"})["models"];
  REQUIRE(models.size() == 1);
  CHECK(models[0]["name"] == "test/tiny");
  CHECK(models[0]["num_kv_heads"] == 2);
  const json stats = ctl_json({"stats"});
  CHECK(stats["precis_segments"] == 1);
  CHECK(stats["precis_puts_committed_total"] == 1);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status"},
                                                {"model", "ls"},
                                                {"stats"},
                                                {"prefix", "ls"},
                                                {"session", "ls"},
                                                {"budget", "show"}}) {
    const Ran ran = ctl(words);
    CHECK(ran.exit_code == kOk);
    CHECK_FALSE(ran.out.empty());
    CHECK(ran.err.empty());
  }
}

TEST_CASE_METHOD(CommandFixture, "prefixes are listed, shown and removed by short ids",
                 "[integration]") {
  const auto one = store(200), two = store(100);
  CHECK(ctl_json({"prefix", "ls"})["prefixes"].size() == 2);
  CHECK(ctl_json({"prefix", "ls", "--model", "test/tiny"})["prefixes"].size() == 2);
  CHECK(ctl({"prefix", "ls", "--model", "nobody"}).exit_code == kNotFound);

  std::size_t digits = 4;
  while (one.id.hex().substr(0, digits) == two.id.hex().substr(0, digits)) ++digits;
  const json shown = ctl_json({"prefix", "show", one.id.hex().substr(0, digits)});
  CHECK(shown["id"] == one.id.hex());
  CHECK(shown["entries"] == one.entries);
  CHECK(shown["keep"]["value"] == 0.25);
  CHECK(shown["recipe"].is_object());
  REQUIRE(shown["plan"].size() == 4);
  std::uint64_t sum = 0;
  for (const json& layer : shown["plan"]) {
    for (const json& count : layer) sum += count.get<std::uint64_t>();
  }
  CHECK(sum == one.entries);

  CHECK(ctl({"prefix", "show", std::string(32, '0')}).exit_code == kNotFound);
  CHECK(ctl({"prefix", "show", "zz"}).exit_code == kUsage);
  CHECK(ctl_json({"prefix", "rm", two.id.hex()})["segments"] == 1);
  CHECK(ctl_json({"prefix", "ls"})["prefixes"].size() == 1);
}

TEST_CASE_METHOD(CommandFixture, "a prefix is trimmed, one segment or all of them",
                 "[integration]") {
  auto tokens = random_tokens(random, 300);
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio_ppm(500'000);
  const auto parent =
      put_all(*client, model, tokens, random_kv(random, model.spec, 0, 300), options).value();
  for (const TokenId token : random_tokens(random, 200)) tokens.push_back(token);
  options.keep = Budget::ratio_ppm(250'000);
  const auto tip =
      put_all(*client, model, tokens, random_kv(random, model.spec, 300, 200), options).value();

  // The dry run reports exactly what the real run then does.
  const std::vector<std::string> whole{"prefix", "trim", tip.id.hex(), "--keep", "0.2", "--whole"};
  auto dry = whole;
  dry.push_back("--dry-run");
  const json would = ctl_json(dry);
  CHECK(would["dry_run"] == true);
  CHECK(client->segment(tip.id).value().entries == tip.entries);
  const json did = ctl_json(whole);
  CHECK(did["freed_bytes"] == would["freed_bytes"]);
  REQUIRE(did["segments"].size() == 2);
  CHECK(did["segments"][0]["segment"] == parent.id.hex());
  CHECK(did["segments"][1]["entries"] == client->segment(tip.id).value().entries);
  CHECK(ctl_json({"prefix", "show", tip.id.hex()})["trimmed"]["value"] == 0.2);
  CHECK(ctl_json(whole)["freed_bytes"] == 0);
  const Ran again = ctl(whole);
  CHECK(again.exit_code == kOk);
  CHECK(again.out.find("segment " + tip.id.hex() + " already keeps what 0.2 leaves of it (") !=
        std::string::npos);
  CHECK(again.out.find("trimmed 0 segments: 0 B freed") != std::string::npos);

  // A segment can be trimmed alone. A trim of a whole prefix leaves segments that store less.
  CHECK(ctl({"prefix", "trim", tip.id.hex(), "--keep", "10 entries"}).exit_code == kOk);
  const json rest = ctl_json({"prefix", "trim", tip.id.hex(), "--keep", "0.1", "--whole"});
  REQUIRE(rest["segments"].size() == 1);
  CHECK(rest["segments"][0]["segment"] == parent.id.hex());
  REQUIRE(rest["left"].size() == 1);
  CHECK(rest["left"][0]["segment"] == tip.id.hex());

  CHECK(ctl({"prefix", "trim", tip.id.hex(), "--keep", "0.9"}).exit_code == kConflict);
  CHECK(ctl({"prefix", "trim", tip.id.hex(), "--keep", "much"}).exit_code == kUsage);
  CHECK(ctl({"prefix", "trim", tip.id.hex()}).exit_code == kUsage);
  CHECK(ctl({"prefix", "trim", std::string(32, '0'), "--keep", "0.1"}).exit_code == kNotFound);
}

TEST_CASE_METHOD(CommandFixture, "sessions are listed, shown and removed", "[integration]") {
  const auto segment = store(100);
  REQUIRE(client->open_session("chat", 3600).ok());
  REQUIRE(client->advance_session("chat", segment.id).ok());
  CHECK(ctl_json({"session", "ls"})["sessions"].size() == 1);
  CHECK(ctl_json({"session", "show", "chat"})["tip"] == segment.id.hex());
  for (const char* verb : {"show", "pin", "unpin", "rm"}) {
    const Ran nobody = ctl({"session", verb, "nobody"});
    CHECK(nobody.exit_code == kNotFound);
    CHECK(nobody.err.find("`precisctl session ls` lists them") != std::string::npos);
  }
  CHECK(ctl_json({"session", "pin", "chat"})["pinned"] == true);
  CHECK(ctl({"prefix", "rm", segment.id.hex()}).exit_code == kConflict);
  CHECK(ctl_json({"session", "unpin", "chat"})["pinned"] == false);

  // A session that had a tip, and one that never had one.
  CHECK(ctl({"prefix", "rm", segment.id.hex()}).exit_code == kOk);
  CHECK(ctl({"session", "ls"}).out.find("chat  removed") != std::string::npos);
  REQUIRE(client->open_session("new", {}).ok());
  CHECK(ctl({"session", "show", "new"}).out.find("none yet") != std::string::npos);
  CHECK(ctl({"session", "rm", "chat"}).exit_code == kOk);
  CHECK(ctl({"session", "rm", "chat"}).exit_code == kNotFound);
}

TEST_CASE_METHOD(CommandFixture, "budgets are shown, set and unset", "[integration]") {
  const json before = ctl_json({"budget", "show"})["effective"];
  const json global =
      ctl_json({"budget", "set", "--recipe", "knorm", "--keep", "0.2"})["effective"];
  CHECK(global["keep"]["value"] == 0.2);
  const json narrow =
      ctl_json({"budget", "set", "--model", "test/tiny", "--keep", "64 entries"})["effective"];
  CHECK(narrow["keep"]["kind"] == "entries");
  CHECK(narrow["keep"]["value"] == 64);
  const json shown = ctl_json({"budget", "show"});
  CHECK(shown["effective"]["keep"]["value"] == 0.2);
  // A model without settings of its own is not listed.
  ModelSpec silent = tiny_model();
  silent.name = "test/silent";
  REQUIRE(client->register_model(silent).ok());
  // A model whose own settings equal the default is not listed either.
  ModelSpec alike = tiny_model();
  alike.name = "test/alike";
  REQUIRE(client->register_model(alike).ok());
  ctl_json({"budget", "set", "--model", "test/alike", "--keep", "0.2"});
  REQUIRE(ctl_json({"budget", "show"})["models"].size() == 1);
  CHECK(shown["models"][0]["model"] == model.fingerprint.hex());
  CHECK(shown["models"][0]["name"] == "test/tiny");
  CHECK(shown["models"][0]["effective"]["recipe"] == "knorm");
  CHECK(shown["models"][0]["effective"]["keep"]["value"] == 64);
  CHECK(shown["models"][0]["layers"].back()["recipe"].is_null());
  CHECK(ctl({"budget", "show"}).out.find("in force for test/tiny") != std::string::npos);
  CHECK(ctl_json({"budget", "show", "--model",
                  model.fingerprint.hex().substr(0, 8)})["effective"]["keep"]["value"] == 64);
  CHECK(client->begin_put(model, random_tokens(random, 200)).value().begun().entries == 64u * 8);
  ctl_json({"budget", "set", "--model", "test/tiny", "--unset"});
  CHECK(ctl_json({"budget", "show"})["models"].empty());
  CHECK(ctl_json({"budget", "set", "--keep", "64 MiB"})["effective"]["keep"]["value"] ==
        (64 << 20));
  CHECK(ctl({"budget", "show"}).out.find("64.0 MiB") != std::string::npos);
  const json after = ctl_json({"budget", "set", "--unset"})["effective"];
  CHECK(after["keep"] == before["keep"]);
  CHECK(after["recipe"] == before["recipe"]);

  const Ran wrong = ctl({"budget", "set", "--recipe", "no_such_preset"});
  CHECK(wrong.exit_code == kUsage);
  CHECK(wrong.err.find("ada_keydiff") != std::string::npos);  // the choices
  CHECK(ctl({"budget", "set", "--keep", "1.5"}).exit_code == kUsage);
  CHECK(ctl({"budget", "set", "--keep", "many"}).exit_code == kUsage);
  CHECK(ctl({"budget", "set"}).exit_code == kUsage);
  CHECK(ctl({"budget", "set", "--unset", "--keep", "0.5"}).exit_code == kUsage);
}

TEST_CASE_METHOD(CommandFixture, "profiles are added, listed, shown and removed", "[integration]") {
  Profile profile;
  profile.name = "learnt";
  profile.model = model.fingerprint;
  profile.scorer = profile_scorer(*parse_recipe("lukv(keydiff)"));
  profile.num_layers = model.spec.num_layers;
  profile.num_kv_heads = model.spec.num_kv_heads;
  profile.num_tokens = 100;
  profile.table.assign(std::size_t{Profile::kCurveRows} * profile.num_layers * profile.num_kv_heads,
                       0.5f);
  const std::string file = dir.path("learnt.json");
  std::ofstream(file) << profile_json(profile);

  CHECK(ctl_json({"profile", "ls"})["profiles"].empty());
  const std::vector<std::string> lukv{"budget", "set", "--model", "test/tiny", "--recipe", "lukv"};
  CHECK(ctl(lukv).exit_code == kNotFound);
  const json in_force = ctl_json({"budget", "show", "--model", "test/tiny"})["effective"];
  const json added = ctl_json({"profile", "add", file});
  CHECK(added["digest"] == profile_digest(profile).hex());
  // The service may prefer a recipe for which there is a profile now, and that is said.
  CHECK(added["recipe_in_force"]["before"] == in_force["recipe"]);
  CHECK(added["recipe_in_force"]["after"] ==
        ctl_json({"budget", "show", "--model", "test/tiny"})["effective"]["recipe"]);
  CHECK(ctl_json({"profile", "ls", "--model", "test/tiny"})["profiles"].size() == 1);
  CHECK(ctl(lukv).exit_code == kOk);
  const Ran for_all = ctl({"budget", "set", "--recipe", "lukv"});
  CHECK(for_all.exit_code == kUsage);
  CHECK(for_all.err.find("'lukv' takes a profile") != std::string::npos);
  CHECK(for_all.err.find("set it for a model that has one") != std::string::npos);
  const std::string copy = dir.path("copy.json");
  const json shown = ctl_json({"profile", "show", "learnt", "--out", copy});
  CHECK(shown["scorer"]["scorer"] == "keydiff");
  CHECK(shown["profile"]["table"].size() == profile.table.size());
  CHECK(ctl({"profile", "add", copy}).exit_code == kOk);
  CHECK(ctl({"profile", "show", "learnt"}).out.find("entries kept of each head") !=
        std::string::npos);
  for (const auto& words :
       {std::vector<std::string>{"profile", "ls"}, {"profile", "show", "learnt"}}) {
    const Ran ran = ctl(words);
    CHECK(ran.exit_code == kOk);
    CHECK(ran.out.find("learnt") != std::string::npos);
  }
  CHECK(ctl({"profile", "show", "none"}).exit_code == kNotFound);
  CHECK(ctl({"profile", "add", dir.path("none.json")}).exit_code == kUsage);
  std::ofstream(copy) << "{\"version\": 7}";
  CHECK(ctl({"profile", "add", copy}).exit_code == kFailed);
  profile.model = Digest{};
  std::ofstream(copy) << profile_json(profile);
  CHECK(ctl({"profile", "add", copy}).exit_code == kNotFound);
  CHECK(ctl({"profile", "add", copy, "--model", "nobody"}).exit_code == kNotFound);
  CHECK(ctl_json({"profile", "add", copy, "--model", "test/tiny"})["model"] ==
        model.fingerprint.hex());
  const Ran used = ctl({"profile", "rm", "learnt"});
  CHECK(used.exit_code == kConflict);
  CHECK(used.err.find("set another recipe there first") != std::string::npos);
  CHECK(ctl({"budget", "set", "--model", "test/tiny", "--unset"}).exit_code == kOk);
  CHECK(ctl({"profile", "rm", "learnt"}).exit_code == kOk);
  CHECK(ctl({"profile", "rm", "learnt"}).exit_code == kNotFound);
}

TEST_CASE_METHOD(CommandFixture, "output that cannot be written is an error", "[integration]") {
  const auto redirected = [&](const std::string& to, std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + to, PRECISCTL_PATH,
                                 "--address", service.address()});
    return run(words);
  };
  // Some of these outputs fit in the buffers of stdio, and some do not.
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status"},
                                                {"stats"},
                                                {"session", "ls"},
                                                {"--help"},
                                                {"--version"}}) {
    CAPTURE(words);
    const Ran ran = redirected(">/dev/full", words);
    CHECK(ran.exit_code == kFailed);
    CHECK(ran.err == "precisctl: output: No space left on device\n");
  }
  const Ran as_json = redirected(">/dev/full", {"status", "--json"});
  CHECK(as_json.exit_code == kFailed);
  CHECK(json::parse(as_json.err)["error"]["message"] == "output: No space left on device");
  // The exit code does not depend on whether the error can be printed.
  CHECK(redirected("2>/dev/full", {"session", "show", "nobody"}).exit_code == kNotFound);
}

TEST_CASE("precisctl says what to do when it is used wrongly or nobody answers", "[integration]") {
  CHECK(run({PRECISCTL_PATH}).exit_code == kUsage);
  CHECK(run({PRECISCTL_PATH, "frobnicate"}).exit_code == kUsage);
  CHECK(run({PRECISCTL_PATH, "prefix"}).exit_code == kUsage);
  const Ran help = run({PRECISCTL_PATH, "--help"});
  CHECK(help.exit_code == kOk);
  CHECK(help.out.find("Exit codes") != std::string::npos);

  const Ran alone = run({PRECISCTL_PATH, "--address", "127.0.0.1:1", "status"});
  CHECK(alone.exit_code == kUnreachable);
  CHECK(alone.err.find("precisd --data DIR") != std::string::npos);
  const auto timed = [](const std::string& timeout) {
    return run({PRECISCTL_PATH, "--address", "127.0.0.1:1", "--timeout", timeout, "status"});
  };
  for (const char* taken : {"5", "5s", "500ms", "0.5"}) {
    CHECK(timed(taken).exit_code == kUnreachable);
  }
  for (const char* refused : {"s", "0", "5m", "5 s", "3601", "nan"}) {
    CHECK(timed(refused).exit_code == kUsage);
  }
  CHECK(timed("5m").err.find("'5m' must be seconds such as 5 or 5s") != std::string::npos);
  const Ran as_json = run({PRECISCTL_PATH, "--address", "127.0.0.1:1", "--json", "status"});
  CHECK(as_json.exit_code == kUnreachable);
  CHECK(json::parse(as_json.err)["error"]["code"] == "unavailable");
}

TEST_CASE("a restoration that can't be is refused as other commands are", "[integration]") {
  const TempDir dir;
  const std::string backups = dir.path("backups"), full = dir.path("full");
  const auto refused = [](std::vector<std::string> words, int exit_code, const char* code) {
    words.insert(words.begin(), {PRECISCTL_PATH, "restore"});
    words.push_back("--json");
    const Ran ran = run(words);
    INFO(ran.out << ran.err);
    CHECK(ran.exit_code == exit_code);
    const json error = json::parse(ran.err)["error"];
    CHECK(error["code"] == code);
    return error["message"].get<std::string>();
  };
  for (const char* how : {"--list", "--dry-run"}) {
    CHECK_THAT(refused({backups, how}, kNotFound, "not_found"), Contains(backups));
  }
  std::filesystem::create_directories(backups);
  CHECK_THAT(refused({backups, "--into", full}, kNotFound, "not_found"),
             Contains("there is no backup in"));
  std::ofstream(backups + "/monday.rows") << "rows";
  std::ofstream(backups + "/friday.rows") << "rows";
  CHECK_THAT(refused({backups, "--into", full, "--name", "nosuch"}, kNotFound, "not_found"),
             Contains("no backup 'nosuch'") && Contains("it has friday, monday"));
  std::filesystem::create_directories(full + "/precious");
  CHECK_THAT(refused({backups, "--into", full, "--name", "friday"}, kConflict, "conflict"),
             Contains("not an empty directory"));
  CHECK(run({PRECISCTL_PATH, "restore", backups, "--list"}).exit_code == kOk);
}

// A port with another program than precisd: answers one connection as an HTTP server would.
class HttpPort {
 public:
  HttpPort() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { answer(); });
  }
  ~HttpPort() {
    ::shutdown(listener_, SHUT_RDWR);  // ends the wait if no connection came
    thread_.join();
    ::close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  void answer() const {
    const int peer = ::accept(listener_, nullptr, nullptr);
    if (peer < 0) return;
    constexpr std::string_view kAnswer =
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    (void)::send(peer, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
    ::shutdown(peer, SHUT_WR);
    // Closing on unread bytes would reset the connection, and could destroy the answer.
    char said[4096];
    while (::recv(peer, said, sizeof said, 0) > 0) {
    }
    ::close(peer);
  }

  const int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string address_;
  std::thread thread_;
};

TEST_CASE("a name that nobody has, or a port with no service on it, is no service to be reached",
          "[integration]") {
  const Ran nowhere = run({PRECISCTL_PATH, "--address", "no..host:7470", "status"});
  CHECK(nowhere.exit_code == kUnreachable);
  CHECK(nowhere.err.find("resolve no..host:7470") != std::string::npos);
  CHECK(nowhere.err.find("--address HOST:PORT") != std::string::npos);

  const HttpPort port;
  const Ran http = run({PRECISCTL_PATH, "--address", port.address(), "status"});
  CHECK(http.exit_code == kUnreachable);
  CHECK(http.err.find(port.address() + " does not answer as a precisd would") != std::string::npos);
  CHECK(http.err.find("is the port right?") != std::string::npos);

  // A malformed address is not the service's fault.
  CHECK(run({PRECISCTL_PATH, "--address", "7470", "status"}).exit_code == kUsage);
  const Ran url = run({PRECISCTL_PATH, "--address", "http://127.0.0.1:7470", "status"});
  CHECK(url.exit_code == kUsage);
  CHECK(url.err.find("without a scheme") != std::string::npos);
}

TEST_CASE("a tenant's token is asked for", "[integration]") {
  const TempDir dir;
  {
    std::ofstream config(dir.path("precisd.toml"));
    config << "[[tenant]]\nname = \"red\"\ntoken = \"secret\"\n";
  }
  ServiceProcess service(dir, {"--config", dir.path("precisd.toml")});
  const std::vector<std::string> ctl{PRECISCTL_PATH, "--address", service.address()};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), ctl.begin(), ctl.end());
    return run(words);
  };
  CHECK(with({"status"}).exit_code == kDenied);
  CHECK(with({"--tenant", "red", "--token", "guess", "status"}).exit_code == kDenied);
  CHECK(with({"--tenant", "red", "--token", "secret", "status"}).exit_code == kOk);
  ConnectOptions options;
  options.tenant = "red";
  const auto client = Client::connect(service.address(), options);
  CHECK(client.status().code() == StatusCode::kPermissionDenied);
}

}  // namespace
