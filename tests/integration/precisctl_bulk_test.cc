// precisctl on many segments: lists, removals and trims by filters, and models.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/integration/precisctl_fixture.h"
#include "tests/integration/pseudo_terminal.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

class BulkFixture : protected PrecisctlFixture {
 protected:
  std::size_t stored() const { return client->segments().value().size(); }
  msg::SegmentInfo put(const std::vector<TokenId>& tokens, std::uint32_t begin, double keep) {
    PutOptions options;
    options.recipe = "ada_keydiff";
    options.keep = Budget::ratio_ppm(static_cast<std::uint32_t>(keep * 1e6));
    const auto size = static_cast<std::uint32_t>(tokens.size()) - begin;
    return put_all(*client, model, tokens, random_kv(random, model.spec, begin, size), options)
        .value();
  }
  msg::SegmentInfo put_new(std::uint32_t num_tokens, double keep = 0.5) {
    return put(random_tokens(random, num_tokens), 0, keep);
  }
  // A root and a child of it.
  std::pair<msg::SegmentInfo, msg::SegmentInfo> put_two() {
    auto tokens = random_tokens(random, 300);
    const auto root = put(tokens, 0, 0.5);
    for (const TokenId token : random_tokens(random, 60)) tokens.push_back(token);
    return {root, put(tokens, 300, 0.5)};
  }
};

TEST_CASE_METHOD(BulkFixture, "prefixes are listed by size, session and use, with totals",
                 "[integration]") {
  const auto small = put_new(100), large = put_new(400);
  const auto [root, tip] = put_two();
  REQUIRE(client->open_session("chat", {}).ok());
  REQUIRE(client->advance_session("chat", tip.id).ok());

  const json by_size = ctl_json({"prefix", "ls", "--sort", "bytes"});
  REQUIRE(by_size["prefixes"].size() == 4);
  CHECK(by_size["prefixes"][0]["id"] == large.id.hex());
  const std::uint64_t all =
      small.stored_bytes + large.stored_bytes + root.stored_bytes + tip.stored_bytes;
  CHECK(by_size["matching"]["stored_bytes"] == all);
  CHECK(by_size["listed"] == by_size["matching"]);
  const json first = ctl_json({"prefix", "ls", "--sort", "bytes", "--limit", "1"});
  CHECK(first["prefixes"].size() == 1);
  CHECK(first["listed"]["stored_bytes"] == large.stored_bytes);
  CHECK(first["matching"]["segments"] == 4);
  CHECK(ctl_json({"prefix", "ls", "--limit", "1"})["matching"].is_null());

  const json of_session = ctl_json({"prefix", "ls", "--session", "chat"})["prefixes"];
  REQUIRE(of_session.size() == 2);
  CHECK(of_session[0]["id"] == tip.id.hex());
  CHECK(of_session[1]["id"] == root.id.hex());
  CHECK(ctl({"prefix", "ls", "--session", "none"}).exit_code == kNotFound);
  const std::string size = std::to_string(small.stored_bytes) + " B";
  CHECK(ctl_json({"prefix", "ls", "--larger", size, "--session", "chat"})["prefixes"].size() ==
        (tip.stored_bytes > small.stored_bytes ? 2 : 1));
  CHECK(ctl_json({"prefix", "ls", "--unused", "1h"})["prefixes"].empty());
  CHECK(ctl_json({"prefix", "ls", "--unused", "0s"})["prefixes"].size() == 4);
  CHECK_THAT(ctl({"prefix", "ls"}).out, Contains("4 segments: "));
  for (const auto& wrong : {std::vector<std::string>{"--unused", "7"},
                            {"--larger", "0.5"},
                            {"--sort", "colour"},
                            {"--limit", "0"},
                            {"--limit", "3", "--all"}}) {
    std::vector<std::string> words{"prefix", "ls"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    CHECK(ctl(words).exit_code == kUsage);
  }
}

TEST_CASE_METHOD(BulkFixture, "a list fits the terminal, and a pipe gets all of it",
                 "[integration]") {
  put_new(100);
  const auto fits = [&](const std::string& wanted, unsigned short columns, std::size_t most) {
    std::vector<std::string> words{"/usr/bin/env", "COLUMNS=" + wanted};
    const auto list_words = command({"prefix", "ls"});
    words.insert(words.end(), list_words.begin(), list_words.end());
    CHECK_THAT(run(words).out, Contains("PARENT") && Contains("MADE"));
    TerminalProgram list(words, columns, 24);
    CHECK(list.wait() == kOk);
    CHECK_THAT(list.shown(), Contains("1 segment: ") && !Contains("PARENT"));
    std::istringstream lines(list.shown());
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= most + 8);  // a carriage return, and ellipses of three bytes
    }
  };
  fits("", 80, 80);
  fits("", 100, 100);
  fits("76", 200, 76);  // the variable overrides the terminal
}

TEST_CASE_METHOD(BulkFixture,
                 "prefixes that match are removed, children first, and parents of "
                 "others stay",
                 "[integration]") {
  const auto [root, tip] = put_two();
  const auto alone = put_new(50);
  const std::vector<std::string> rm{"prefix", "rm", "--larger",
                                    std::to_string(tip.stored_bytes) + " B"};
  REQUIRE(root.stored_bytes > tip.stored_bytes);
  const auto with = [&](std::initializer_list<std::string> more) {
    auto words = rm;
    words.insert(words.end(), more);
    return words;
  };
  CHECK(ctl(rm).exit_code == kUsage);  // nobody can be asked
  CHECK_THAT(ctl(rm).err, Contains("give --yes"));
  const json would = ctl_json(with({"--dry-run"}));
  CHECK(would["segments"] == 0);
  CHECK(would["kept_parents"] == 1);
  CHECK(would["dry_run"] == true);
  CHECK(ctl_json(with({"--yes"}))["segments"] == 0);
  CHECK(stored() == 3);
  const json all = ctl_json(with({"--yes", "--recursive"}));
  CHECK(all["segments"] == 2);
  CHECK(all["bytes"] == root.stored_bytes + tip.stored_bytes);

  CHECK(ctl({"prefix", "rm"}).exit_code == kUsage);
  CHECK(ctl({"prefix", "rm", alone.id.hex(), "--model", "test/tiny"}).exit_code == kUsage);
  const Ran dry = ctl({"prefix", "rm", alone.id.hex(), "--recursive", "--dry-run"});
  CHECK(dry.exit_code == kUsage);
  CHECK_THAT(dry.err, Catch::Contains("prefix show ID"));
  CHECK_THAT(ctl({"prefix", "rm", "--help"}).out, Catch::Contains("Without an id: show how many"));
  CHECK(ctl_json({"prefix", "rm", "--unused", "1h", "--yes"})["segments"] == 0);
  CHECK_THAT(ctl({"prefix", "rm", "--model", "test/tiny", "--yes"}).out,
             Contains("removed 1 segment, "));
  CHECK(stored() == 0);
}

TEST_CASE_METHOD(BulkFixture,
                 "a pinned session's prefix is left, and a whole command of refusals "
                 "is refused",
                 "[integration]") {
  const auto [root, tip] = put_two();
  put_new(50);
  REQUIRE(client->open_session("chat", {}).ok());
  REQUIRE(client->advance_session("chat", tip.id).ok());
  REQUIRE(client->pin_session("chat", true).ok());
  const json done = ctl_json({"prefix", "rm", "--model", "test/tiny", "--yes"});
  CHECK(done["segments"] == 1);
  REQUIRE(done["left"].size() == 2);
  CHECK(done["left"][0]["segment"] == tip.id.hex());
  const Ran refused = ctl({"prefix", "rm", "--model", "test/tiny", "--yes"});
  CHECK(refused.exit_code == kConflict);
  CHECK_THAT(refused.out, Contains("not removed: 2 segments, the first: "));
  CHECK_THAT(refused.err, Contains("'chat' is pinned"));
  CHECK(ctl({"prefix", "rm", tip.id.hex()}).exit_code == kConflict);
  REQUIRE(client->pin_session("chat", false).ok());
  CHECK(ctl({"prefix", "rm", root.id.hex()}).exit_code == kConflict);  // it has a child
}

TEST_CASE_METHOD(BulkFixture, "prefixes that match are trimmed", "[integration]") {
  const auto large = put_new(300), little = put_new(300, 0.1);
  const std::vector<std::string> trim{"prefix", "trim", "--model", "test/tiny", "--keep", "0.2"};
  CHECK(ctl(trim).exit_code == kUsage);
  auto dry = trim;
  dry.push_back("--dry-run");
  const json would = ctl_json(dry);
  CHECK(client->segment(large.id).value().entries == large.entries);
  auto now = trim;
  now.push_back("--yes");
  const json did = ctl_json(now);
  CHECK(did["freed_bytes"] == would["freed_bytes"]);
  CHECK(did["freed_bytes"] == large.stored_bytes - client->segment(large.id).value().stored_bytes);
  REQUIRE(did["left"].size() == 1);
  CHECK(did["left"][0]["segment"] == little.id.hex());
  CHECK(ctl({"prefix", "trim", little.id.hex(), "--keep", "0.2"}).exit_code == kConflict);
  CHECK(ctl({"prefix", "trim", "--keep", "0.2"}).exit_code == kUsage);
  CHECK(ctl({"prefix", "trim", "--model", "test/tiny", "--whole", "--keep", "0.2", "--yes"})
            .exit_code == kUsage);
}

TEST_CASE_METHOD(BulkFixture, "an operator sets the priority and the TTL of a stored prefix",
                 "[integration]") {
  const auto [root, tip] = put_two();
  const std::string id = tip.id.hex().substr(0, 12);
  const auto now = [&](const msg::SegmentInfo& of) {
    const auto info = client->segment(of.id).value();
    return std::pair(info.priority, info.ttl_seconds);
  };
  CHECK_THAT(ctl({"prefix", "set", id, "--priority", "80", "--ttl", "1.5h"}).out,
             Contains("1 segment: priority 80, ttl "));
  CHECK(now(tip) == std::pair(80u, std::uint64_t{5400}));
  CHECK(now(root) == std::pair(50u, std::uint64_t{0}));
  const json set = ctl_json({"prefix", "set", id, "--ttl", "1d", "--whole"});
  REQUIRE(set["prefixes"].size() == 2);
  CHECK(set["prefixes"][1]["id"] == root.id.hex());
  CHECK(set["prefixes"][0]["priority"] == 80);
  CHECK(now(root) == std::pair(50u, std::uint64_t{86400}));
  CHECK_THAT(ctl({"prefix", "set", id, "--ttl", "none"}).out, Contains("no ttl"));
  CHECK(now(tip) == std::pair(80u, std::uint64_t{0}));
  for (const auto& wrong : {std::vector<std::string>{},
                            {"--priority", "101"},
                            {"--priority", "-1"},
                            {"--ttl", "7"},
                            {"--ttl", "-1h"}}) {
    std::vector<std::string> words{"prefix", "set", id};
    words.insert(words.end(), wrong.begin(), wrong.end());
    CHECK(ctl(words).exit_code == kUsage);
  }
  CHECK(ctl({"prefix", "set", std::string(32, '0'), "--priority", "1"}).exit_code == kNotFound);
  CHECK(now(tip) == std::pair(80u, std::uint64_t{0}));
}

TEST_CASE_METHOD(BulkFixture, "on a terminal the user is asked", "[integration]") {
  put_new(100);
  const auto rm = command({"prefix", "rm", "--model", "test/tiny"});
  TerminalProgram no(rm, 80, 24);
  REQUIRE(no.shows("Remove 1 segment, "));
  no.type("n\n");
  CHECK(no.wait() == kStopped);
  CHECK_THAT(no.shown(), Contains("nothing was changed"));
  CHECK(stored() == 1);
  TerminalProgram yes(rm, 80, 24);
  REQUIRE(yes.shows("[y/N] "));
  yes.type("y\n");
  CHECK(yes.wait() == kOk);
  CHECK_THAT(yes.shown(), Contains("removed 1 segment, "));
  CHECK(stored() == 0);
}

TEST_CASE_METHOD(BulkFixture, "a model is removed once it has no segments, or with them",
                 "[integration]") {
  put_two();
  const json listed = ctl_json({"model", "ls"})["models"][0];
  CHECK(listed["segments"] == 2);
  CHECK(listed["stored_bytes"] == ctl_json({"prefix", "ls"})["listed"]["stored_bytes"]);
  const Ran refused = ctl({"model", "rm", "test/tiny"});
  CHECK(refused.exit_code == kConflict);
  CHECK_THAT(refused.err, Contains("has 2 segments") && Contains("--recursive"));
  CHECK(ctl({"model", "rm", "test/tiny", "--recursive"}).exit_code == kUsage);
  const json removed = ctl_json({"model", "rm", "test/tiny", "--recursive", "--yes"});
  CHECK(removed["segments"] == 2);
  CHECK(removed["removed"] == true);
  CHECK(ctl_json({"model", "ls"})["models"].empty());
  CHECK(ctl({"model", "rm", "test/tiny"}).exit_code == kNotFound);
  // It can be registered again.
  model = client->register_model(tiny_model()).value();
  put_new(50);
  CHECK(stored() == 1);
}

}  // namespace
