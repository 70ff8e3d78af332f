// precisctl in a shell and on a screen: completion, --watch and top.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/integration/pseudo_terminal.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

// The words that bash offers for the last of `words`, one a line.
std::string offered(const std::string& words) {
  const Ran ran = run({"/bin/bash", "--norc", "-c",
                       "source <(\"$0\" completion bash) && COMP_WORDS=(" + words +
                           ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _precisctl && "
                           "printf '%s\\n' \"${COMPREPLY[@]}\" && complete -p precisctl >&2",
                       PRECISCTL_PATH});
  CHECK_THAT(ran.err, Contains("-F _precisctl precisctl"));
  CHECK(ran.exit_code == 0);
  return ran.out;
}

TEST_CASE("bash completes commands, options and values", "[integration]") {
  CHECK(offered("precisctl pre") == "prefix\n");
  CHECK(offered("precisctl prefix ''").starts_with("ls\nshow\nrm\ntrim\n"));
  CHECK(offered("precisctl prefix ls --so") == "--sort\n");
  CHECK(offered("precisctl prefix ls --sort h") == "hits\n");
  CHECK(offered("precisctl --tenant prefix mod") == "model\n");  // that prefix is a value
  CHECK(offered("precisctl prefix ls --add") == "--address\n");  // an option of precisctl
  CHECK(offered("precisctl completion z") == "zsh\n");
  CHECK(offered("precisctl prefix ls --model x") == "\n");  // bash then offers files
}

TEST_CASE("zsh and fish can read their completions, if they are installed", "[integration]") {
  for (const std::string shell : {"zsh", "fish"}) {
    CAPTURE(shell);
    const Ran script = run({PRECISCTL_PATH, "completion", shell});
    CHECK(script.exit_code == 0);
    CHECK_THAT(script.out, Contains("--sort") || Contains("-l sort"));
    CHECK_THAT(script.out, Contains("List the models"));
    const Ran read = run({"/bin/sh", "-c",
                          "command -v " + shell + " >/dev/null || exit 0; \"$0\" completion " +
                              shell + " | " + shell + " -n /dev/stdin",
                          PRECISCTL_PATH});
    CHECK(read.exit_code == 0);
    CHECK(read.err == "");
  }
  CHECK(run({PRECISCTL_PATH, "completion", "tcsh"}).exit_code == 2);
}

// Stores a prefix and finds it. A call of the result finds the prefix once more.
std::function<void()> store_and_hit(Client& client) {
  const Model model = client.register_model(tiny_model()).value();
  std::mt19937 random{7};
  const auto tokens = random_tokens(random, 100);
  REQUIRE(put_all(client, model, tokens, random_kv(random, model.spec, 0, 100), PutOptions()).ok());
  std::function<void()> hit = [&client, model, tokens] {
    CHECK(client.lookup(model, tokens).value().matched_tokens > 0);
  };
  hit();
  return hit;
}

// Reads lines of a program up to one that `is_wanted`; false if it ends before.
bool read_until(Process& program, const std::function<bool(const std::string&)>& is_wanted) {
  for (auto line = program.read_line(); line; line = program.read_line()) {
    if (is_wanted(*line)) return true;
  }
  return false;
}

int wait_after_ctrl_c(Process& program) {
  program.signal(SIGINT);
  while (program.read_line()) {
  }
  return program.wait();
}

class ShellFixture {
 protected:
  TempDir dir;
  ServiceProcess service{dir};
  std::shared_ptr<Client> client = service.connect();

  std::vector<std::string> command(std::vector<std::string> words) const {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", service.address()});
    return words;
  }
  void store() { hit_again = store_and_hit(*client); }

  std::function<void()> hit_again;  // what store() has stored
};

TEST_CASE_METHOD(ShellFixture, "a list is shown again and again, until Ctrl-C", "[integration]") {
  Process watch(command({"model", "ls", "--watch", "0.1"}));
  const auto until = [&](const std::string& wanted) {
    return read_until(
        watch, [&](const std::string& line) { return line.find(wanted) != std::string::npos; });
  };
  REQUIRE(until("no models"));
  store();
  REQUIRE(until("test/tiny"));
  CHECK(wait_after_ctrl_c(watch) == 0);
  CHECK(run(command({"status", "--watch", "0"})).exit_code == 2);
  CHECK(run({PRECISCTL_PATH, "--address", "127.0.0.1:1", "status", "--watch", "0.1"}).exit_code ==
        4);
}

TEST_CASE_METHOD(ShellFixture, "on a terminal, a watched list has the screen until q",
                 "[integration]") {
  TerminalProgram watch(command({"status", "--watch"}), 80, 12);
  REQUIRE(watch.shows("every 2 s; q ends it"));
  REQUIRE(watch.shows("tenant"));
  watch.type("q");
  CHECK(watch.wait() == 0);
  CHECK_THAT(watch.shown(), Contains("\x1b[?1049h") && Contains("\x1b[?1049l"));
}

TEST_CASE_METHOD(ShellFixture, "top shows rates, shares, memory, disk and the newest segments",
                 "[integration]") {
  store();
  const Ran once = run(command({"top", "--once", "--interval", "0.1", "--json"}));
  REQUIRE(once.exit_code == 0);
  const json top = json::parse(once.out);
  CHECK(top["seconds"] > 0.0);
  CHECK(top["totals"]["puts"] == 1);
  CHECK(top["totals"]["hits"] == 1);
  CHECK(top["rates"]["puts"] == 0.0);
  CHECK(top["hit_share"].is_null());
  CHECK(top["clients"] >= 1);
  CHECK(top["status"]["memory_limit_bytes"] > 0);
  REQUIRE(top["newest"].size() == 1);
  // The tenant is no admin, so top shows the tenant's models. The refused request for the tenants
  // counts in no rate.
  CHECK_FALSE(top.contains("tenants"));
  CHECK(top["rates"]["failed"] == 0.0);
  REQUIRE(top["models"].size() == 1);
  CHECK(top["models"][0]["name"] == "test/tiny");
  CHECK(top["models"][0]["stored_bytes"] > 0);
  CHECK(top["models"][0]["hits_per_second"] == 0.0);
  const Ran text = run(command({"top", "--once", "--interval", "0.1"}));
  CHECK_THAT(text.out, Contains("PER SECOND") && Contains("HITS/S") && Contains("newest segments"));
  CHECK(text.out.find('\x1b') == std::string::npos);

  TerminalProgram live(command({"top", "--interval", "0.2"}), 80, 40);
  REQUIRE(live.shows("newest segments"));
  live.type("q");
  CHECK(live.wait() == 0);
  std::istringstream lines(live.shown());
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 80 + 40u);  // escape sequences, and ellipses of three bytes
  }
}

TEST_CASE_METHOD(ShellFixture, "top goes on to say how often each model is hit", "[integration]") {
  store();
  Process top(command({"top", "--interval", "0.1", "--json"}));
  const std::string key = "\"hits_per_second\": ";
  const auto has_rate = [&](const std::string& line) { return line.find(key) != line.npos; };
  REQUIRE(read_until(top, has_rate));
  hit_again();
  CHECK(read_until(top, [&](const std::string& line) {
    return has_rate(line) &&
           std::strtod(line.c_str() + line.find(key) + key.size(), nullptr) > 0;  // 0 for null
  }));
  CHECK(wait_after_ctrl_c(top) == 0);
}

TEST_CASE("top shows an admin the tenants", "[integration]") {
  const TempDir dir;
  std::ofstream(dir.path("precisd.toml"))
      << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n"
      << "[[tenant]]\nname = 'red'\ntoken = 'apple'\n";
  const ServiceProcess service(dir, {"--config", dir.path("precisd.toml")});
  ConnectOptions as_red;
  as_red.tenant = "red";
  as_red.token = "apple";
  const std::shared_ptr<Client> red = service.connect(as_red);
  store_and_hit(*red);
  std::vector<std::string> words{
      PRECISCTL_PATH, "--address", service.address(), "--tenant",   "ops", "--token",
      "boss",         "top",       "--once",          "--interval", "0.1"};
  CHECK_THAT(run(words).out, Contains("\nTENANT ") && Contains("\nred ") && Contains("\nops "));
  words.emplace_back("--json");
  const json top = json::parse(run(words).out);
  CHECK_FALSE(top.contains("models"));
  REQUIRE(top["tenants"].size() == 2);
  CHECK(top["tenants"][0]["name"] == "red");  // it stores something
  CHECK(top["tenants"][0]["stored_bytes"] > 0);
  CHECK(top["tenants"][0]["hits_per_second"] == 0.0);
  CHECK(top["tenants"][0]["puts"] == 0);
  CHECK(top["tenants"][1]["name"] == "ops");
}

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(PRECIS_SOURCE_DIR "/" + path).rdbuf();
  return text.str();
}

json printed(std::vector<std::string> words) {
  words.emplace_back("--json");
  const Ran ran = run(words);
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  return json::parse(ran.out);
}

// Adds the keys of an object, or of the first one in a list, and the keys of those of its members
// that `in` names.
void add_keys(const json& of, const std::set<std::string>& in, std::set<std::string>& keys) {
  if (of.is_array() && !of.empty()) return add_keys(of.front(), in, keys);
  for (const auto& [key, value] : of.items()) {
    if (!of.is_object()) return;
    keys.insert(key);
    if (in.contains(key)) add_keys(value, in, keys);
  }
}

void check_guide(const std::set<std::string>& keys, const std::string& guide) {
  for (const std::string& key : keys) CHECK_THAT(guide, Contains("`" + key + "`"));
}

// Checks keys of rows that the guide describes by their struct.
void check_guide_or_schema(const std::set<std::string>& keys, const std::string& guide) {
  const std::string schema = content("schema/control.capnp") + content("schema/types.capnp");
  for (const std::string& key : keys) {
    std::string field;
    for (std::size_t i = 0; i < key.size(); ++i) {
      const bool begins_word = key[i] == '_' && i + 1 < key.size();
      field += begins_word ? static_cast<char>(std::toupper(key[++i])) : key[i];
    }
    INFO(key);
    CHECK_THAT(guide + schema, Contains("`" + key + "`") || Contains("  " + field + " @"));
  }
}

constexpr char kGuide[] = "docs/guides/operations.md";

TEST_CASE_METHOD(ShellFixture, "every key that a command adds to its JSON is in the guide",
                 "[integration]") {
  store();
  const std::string id = client->segments().value().front().id.hex();
  REQUIRE(client->open_session("chat", {}).ok());
  const std::set<std::string> in{"rates", "listed", "stored", "next_put", "effective"};
  std::set<std::string> keys, of_rows;
  using Commands = std::vector<std::vector<std::string>>;
  const auto add = [&](const Commands& commands) {
    for (const auto& words : commands) add_keys(printed(command(words)), in, keys);
  };
  add({{"top", "--once", "--interval", "0.1"},
       {"prefix", "ls"},
       {"prefix", "set", id, "--priority", "60"},
       {"prefix", "trim", "--model", "test/tiny", "--keep", "0.1", "--dry-run"},
       {"prefix", "rm", "--model", "test/tiny", "--dry-run"},
       {"session", "ls"},
       {"profile", "ls"},
       {"budget", "show"},
       {"budget", "set", "--model", "test/tiny", "--recipe", "kvdiff", "--layers", "0-3=0.2",
        "--dry-run"},
       {"budget", "set", "--model", "test/tiny", "--recipe", "kvdiff", "--layers", "0-3=0.2"},
       {"budget", "set", "--keep", "0.2"},
       {"budget", "log"},
       {"budget", "diff", "0"},
       {"budget", "application"}});
  const std::string profile = printed(command({"profile", "ls"}))["profiles"][0]["name"];
  const std::string copy = dir.path("profile.json");
  for (const auto& words : Commands{{"status"},
                                    {"model", "ls"},
                                    {"prefix", "show", id},
                                    {"session", "show", "chat"},
                                    {"profile", "show", profile, "--out", copy},
                                    {"profile", "add", copy}}) {
    add_keys(printed(command(words)), {"models"}, of_rows);
  }
  add({{"session", "rm", "chat"},
       {"budget", "rollback", "0"},
       {"profile", "rm", profile},
       {"fsck"},
       {"model", "rm", "test/tiny", "--recursive", "--yes"}});
  CHECK(keys.size() > 40);
  CHECK(of_rows.size() > 60);
  check_guide(keys, content(kGuide));
  check_guide_or_schema(of_rows, content(kGuide));

  const Ran events = run(command({"events", "--json"}));
  std::set<std::string> of_events;
  std::istringstream lines(events.out);
  for (std::string line; std::getline(lines, line);) add_keys(json::parse(line), {}, of_events);
  CHECK(of_events.contains("blocks"));
  check_guide(of_events, content("docs/guides/events.md"));
}

TEST_CASE("every key in the JSON of tenants and backups is in the guide", "[integration]") {
  const TempDir dir;
  std::ofstream(dir.path("precisd.toml"))
      << "backup_dir = '" << dir.path("backups") << "'\n"
      << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n";
  const ServiceProcess service(dir, {"--config", dir.path("precisd.toml")});
  std::set<std::string> keys;
  const std::set<std::string> in{"tenants", "tenant", "backups", "backup"};
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"top", "--once", "--interval", "0.1"},
                                             {"tenant", "add", "red"},
                                             {"tenant", "ls"},
                                             {"tenant", "show", "red"},
                                             {"tenant", "rotate", "red"},
                                             {"tenant", "rm", "red"},
                                             {"backup"},
                                             {"backup", "cancel"},
                                             {"backup", "ls"}}) {
    std::vector<std::string> all{PRECISCTL_PATH, "--address", service.address(), "--tenant", "ops",
                                 "--token",      "boss"};
    all.insert(all.end(), words.begin(), words.end());
    add_keys(printed(all), in, keys);
  }
  for (const char* how : {"--list", "--dry-run"}) {
    add_keys(printed({PRECISCTL_PATH, "restore", dir.path("backups"), how}), in, keys);
  }
  CHECK(keys.size() > 30);
  check_guide(keys, content(kGuide));
}

}  // namespace
