// Budgets of sessions: what puts that name a session get, precisctl, and what is stored.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/integration/precisctl_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;
using nlohmann::json;

class SessionBudgets : protected PrecisctlFixture {
 protected:
  SessionBudgets() { REQUIRE(client->open_session("chat", {}).ok()); }

  // The answer to a put of new tokens.
  msg::PutBegun begun(const std::string& session, std::optional<double> keep = {}) {
    PutOptions how;
    how.session = session;
    if (keep) how.keep = Budget::ratio(*keep).value();
    return client->begin_put(model, random_tokens(random, 400), how).value().begun();
  }
  msg::SegmentInfo put(const std::vector<TokenId>& path, std::uint32_t end) {
    PutOptions how;
    how.keep = Budget::ratio(0.6).value();
    const std::vector<TokenId> prefix(path.begin(), path.begin() + end);
    const auto stored = put_all(*client, model, prefix, random_kv(random, model.spec, 0, end), how);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return *stored;
  }
};

const auto ratio = [](double share) { return Budget::ratio(share).value(); };

TEST_CASE_METHOD(SessionBudgets, "a put that names a session gets its budget, within its limit",
                 "[integration]") {
  budget_json({"set", "--recipe", "keydiff", "--keep", "0.3"});
  budget_json({"set", "--model", "test/tiny", "--limit", "0.8"});
  const json set = budget_json({"set", "--session", "chat", "--keep", "0.5", "--limit", "0.6"});
  CHECK(set["effective"]["scope"] == "session chat");
  CHECK(begun("chat").budget == ratio(0.5));
  CHECK_FALSE(begun("chat").limited);
  CHECK(begun("chat", 0.9).budget == ratio(0.6));
  CHECK(begun("chat", 0.9).limited);
  CHECK(begun("", 0.9).budget == ratio(0.8));
  CHECK(begun("").budget == ratio(0.3));

  const json shown = budget_json({"show"});
  REQUIRE(shown["sessions"].size() == 1);
  CHECK(shown["sessions"][0]["limit"]["value"] == 0.6);
  CHECK(budget({"show"}).out.find("session chat") != std::string::npos);
  CHECK(budget_json({"show", "--session", "chat"})["effective"]["keep"]["value"] == 0.5);
  CHECK(budget_json({"log"})["revisions"][0]["changes"][0]["scope"] == "session chat");
  CHECK(budget_json({"diff", "2"})[0]["scope"] == "session chat");
  CHECK(budget_json({"show", "--revision", "3"}).size() == 3);

  budget_json({"set", "--session", "chat", "--unset"});
  CHECK(begun("chat").budget == ratio(0.3));
  CHECK(begun("chat", 0.9).budget == ratio(0.8));
  budget_json({"rollback", "3"});
  CHECK(begun("chat").budget == ratio(0.5));

  REQUIRE(client->remove_session("chat").ok());
  PutOptions how;
  how.session = "chat";
  const Status gone = client->begin_put(model, random_tokens(random, 400), how).status();
  CHECK(gone.code() == StatusCode::kNotFound);
  CHECK_THAT(gone.message(), Catch::Contains("session 'chat' does not exist"));
  CHECK(budget_json({"show"})["sessions"].empty());
  budget_json({"rollback", "2"});
}

TEST_CASE_METHOD(SessionBudgets, "a session's budget that can't be is refused", "[integration]") {
  CHECK(budget({"set", "--session", "none", "--keep", "0.2"}).exit_code == kNotFound);
  CHECK(budget({"show", "--session", "none"}).exit_code == kNotFound);
  const Ran both = budget({"set", "--session", "chat", "--model", "test/tiny", "--keep", "0.2"});
  CHECK(both.exit_code == kUsage);
  const Ran above = budget({"set", "--session", "chat", "--keep", "0.5", "--limit", "0.4"});
  CHECK(above.exit_code == kUsage);
  CHECK(above.err.find("above the limit 0.4") != std::string::npos);
  CHECK(budget_json({"log"})["newest"] == 0);
}

TEST_CASE_METHOD(SessionBudgets, "a change concerns what is stored by puts of its scope",
                 "[integration]") {
  const auto path = random_tokens(random, 448);
  auto other = random_tokens(random, 448);
  std::copy_n(path.begin(), 320, other.begin());
  const msg::SegmentInfo root = put(path, 256), shared = put(path, 320), own = put(path, 448),
                         others = put(other, 448);
  REQUIRE(shared.parent == root.id);
  REQUIRE(own.parent == shared.id);
  REQUIRE(others.parent == shared.id);
  REQUIRE(client->advance_session("chat", own.id).ok());
  // The stored bytes tell which segments are concerned.
  const auto concerned = [](const json& answer) {
    return answer["stored"]["bytes"].get<std::uint64_t>();
  };

  const json dry = budget_json({"set", "--session", "chat", "--keep", "0.2", "--dry-run"});
  CHECK(concerned(dry) == own.stored_bytes);
  CHECK(client->segment(own.id).value() == own);
  budget_json({"set", "--session", "chat", "--keep", "0.2", "--apply-to-stored"});
  CHECK(client->segment(own.id).value().trimmed == ratio(0.2));
  // A change of all models leaves the session's own turns.
  CHECK(concerned(budget_json({"set", "--keep", "0.5", "--dry-run"})) ==
        root.stored_bytes + shared.stored_bytes + others.stored_bytes);
  CHECK(concerned(budget_json({"rollback", "0", "--dry-run"})) == 0);

  // The limits of narrower scopes count.
  budget_json({"set", "--model", "test/tiny", "--limit", "0.4"});
  CHECK(concerned(budget_json({"set", "--limit", "0.1", "--dry-run"})) == 0);
  budget_json({"set", "--keep", "0.5", "--apply-to-stored"});
  CHECK(client->segment(others.id).value().trimmed == ratio(0.4));
  CHECK(client->segment(own.id).value().trimmed == ratio(0.2));
}

TEST_CASE_METHOD(SessionBudgets, "the total of a session is set, shown and ended",
                 "[integration]") {
  const auto session = [this](std::vector<std::string> words) {
    words.insert(words.begin(), "session");
    return ctl(words);
  };
  const json set = ctl_json({"session", "set", "chat", "--total", "20%"});
  CHECK(set["total"]["value"] == 0.2);
  const msg::SegmentInfo turn = put(random_tokens(random, 320), 320);
  REQUIRE(client->advance_session("chat", turn.id).ok());
  const json shown = ctl_json({"session", "show", "chat"});
  CHECK(shown["total"]["value"] == 0.2);
  CHECK(shown["stored_bytes"] == turn.stored_bytes);
  CHECK(shown["original_bytes"] == turn.original_bytes);
  CHECK(session({"show", "chat"}).out.find("takes") != std::string::npos);
  CHECK(session({"ls"}).out.find("TOTAL") != std::string::npos);
  REQUIRE(session({"set", "chat", "--total", "64MiB"}).exit_code == kOk);
  CHECK(client->session("chat").value().total == Budget::bytes(64 << 20));
  for (const char* wrong : {"0", "1.5", "64", "5 entries", "loss 0.05", "much"}) {
    const Ran refused = session({"set", "chat", "--total", wrong});
    CHECK(refused.exit_code == kUsage);
    CHECK_THAT(refused.err, Catch::Contains("a share of the full KV in (0, 1]"));
    CHECK_THAT(refused.err, !Catch::Contains("entries per head"));
  }
  CHECK(session({"set", "none", "--total", "0.5"}).exit_code == kNotFound);
  CHECK(client->session("chat").value().total == Budget::bytes(64 << 20));
  REQUIRE(session({"set", "chat", "--total", "none"}).exit_code == kOk);
  CHECK_FALSE(client->session("chat").value().total);
}

}  // namespace
