// precisctl budget: revisions, limits, tables of layers and heads, and what a change does to stored
// segments.
#include <array>
#include <catch2/catch.hpp>
#include <fstream>

#include "precis/limits.h"
#include "tests/integration/precisctl_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;
using nlohmann::json;

constexpr std::uint32_t kTokens = 400;

class BudgetCommands : protected PrecisctlFixture {
 protected:
  static PutOptions keeping(double share) {
    PutOptions how;
    how.keep = Budget::ratio(share).value();
    return how;
  }
  // The part that a dry run and the trims have in common.
  static json effect_of(json application) {
    for (const char* key : {"number", "revision", "started_unix_ms", "ended_unix_ms", "dry_run"}) {
      application.erase(key);
    }
    return application;
  }
};

TEST_CASE_METHOD(BudgetCommands, "revisions are listed, compared and rolled back",
                 "[integration]") {
  budget_json(
      {"set", "--recipe", "keydiff", "--keep", "0.4", "--comment", "first", "--user", "ada"});
  budget_json({"set", "--model", "test/tiny", "--keep", "0.5", "--if-revision", "1"});
  budget_json({"set", "--keep", "0.2"});
  const json log = budget_json({"log"});
  CHECK(log["newest"] == 3);
  REQUIRE(log["revisions"].size() == 3);
  CHECK(log["revisions"][2]["user"] == "ada");
  CHECK(log["revisions"][2]["comment"] == "first");
  CHECK(log["revisions"][1]["changes"][0]["scope"] == "model test/tiny");
  CHECK(log["revisions"][0]["changes"][0]["before"]["keep"]["value"] == 0.4);
  CHECK(budget({"log"}).out.find("keep 0.2") != std::string::npos);

  const json diff = budget_json({"diff", "1"});
  CHECK(diff.size() == 2);
  CHECK(budget_json({"diff", "3", "1"})[0]["after"]["keep"]["value"] == 0.4);
  CHECK(budget_json({"diff", "3", "3"}).empty());
  CHECK(budget_json({"show", "--revision", "1"}).size() == 1);
  CHECK(budget({"diff", "9"}).exit_code == kNotFound);

  CHECK(budget({"set", "--keep", "0.3", "--if-revision", "2"}).exit_code == kConflict);
  CHECK(budget({"rollback", "3"}).exit_code == kConflict);
  CHECK(budget_json({"rollback", "1", "--dry-run"})["changes"].size() == 2);
  CHECK(budget_json({"show"})["effective"]["keep"]["value"] == 0.2);
  CHECK(budget_json({"rollback", "1"})["number"] == 4);
  CHECK(budget_json({"log"})["revisions"][0]["comment"] == "rollback to 1");
  CHECK(budget_json({"show"})["effective"]["keep"]["value"] == 0.4);
  CHECK(budget_json({"show", "--model", "test/tiny"})["effective"]["keep"]["value"] == 0.4);
}

TEST_CASE_METHOD(BudgetCommands, "revision 0 is the state before the first change",
                 "[integration]") {
  CHECK(budget_json({"show", "--revision", "0"}) == json::array());
  budget_json({"set", "--keep", "0.4"});
  budget_json({"set", "--model", "test/tiny", "--keep", "0.5"});
  CHECK(budget_json({"show", "--revision", "0"}) == json::array());
  CHECK(budget({"show", "--revision", "0"}).out == "nothing was set\n");
  CHECK(budget_json({"show", "--revision", "2"}).size() == 2);
  CHECK(budget_json({"diff", "1", "0"})[0]["before"]["keep"]["value"] == 0.4);
  CHECK(budget_json({"diff", "1", "0"})[0]["after"]["keep"].is_null());
}

TEST_CASE_METHOD(BudgetCommands, "a budget is not taken from a revision that is no longer kept",
                 "[integration]") {
  msg::SetBudget change;
  for (std::size_t i = 0; i < limits::kBudgetRevisionsMax + 1; ++i) {
    change.keep = Budget::entries(i + 1);
    REQUIRE(client->set_budget(change).ok());
  }
  const Ran gone = budget({"show", "--revision", "0"});
  CHECK(gone.exit_code == kNotFound);
  CHECK_THAT(gone.err, Catch::Contains("not all revisions after 0 are kept any more"));
  CHECK(budget_json({"show", "--revision", "1"}).size() == 1);
}

TEST_CASE_METHOD(BudgetCommands, "a limit lowers what puts ask for, and the put says so",
                 "[integration]") {
  budget_json({"set", "--recipe", "keydiff", "--limit", "0.25"});
  PutOptions how = keeping(0.5);
  const auto tokens = random_tokens(random, kTokens);
  const auto begun = client->begin_put(model, tokens, how).value().begun();
  CHECK(begun.limited);
  CHECK(begun.budget == Budget::ratio(0.25).value());
  CHECK(begun.entries == 100u * 8);
  how.keep = Budget::entries(300);
  CHECK(client->begin_put(model, tokens, how).value().begun().budget ==
        Budget::ratio(0.25).value());
  how.keep = Budget::ratio(0.2).value();
  CHECK_FALSE(client->begin_put(model, tokens, how).value().begun().limited);
  CHECK(store(kTokens, keeping(0.9)).budget == Budget::ratio(0.25).value());
  PutOptions floor = keeping(0.9);
  floor.recipe = "keydiff(min_entries=100000)";
  CHECK(store(kTokens, floor).entries == 100u * 8);
  CHECK(budget({"set", "--keep", "0.3"}).exit_code == kConflict);  // above the stored limit
  for (const std::string wrong : {"loss 0.05", "64"}) {
    const Ran refused = budget({"set", "--limit", wrong});
    CHECK(refused.exit_code == kUsage);
    CHECK_THAT(refused.err, Catch::Contains("--limit '" + wrong + "': give a ratio in (0, 1]"));
    CHECK_THAT(refused.err.substr(wrong.size() + 30), !Catch::Contains("loss"));
  }
  CHECK_THAT(budget({"set", "--help"}).out, Catch::Contains("a ratio, entries, bytes or a share"));
  budget_json({"set", "--unset"});
  CHECK_FALSE(client->begin_put(model, tokens, keeping(0.5)).value().begun().limited);
}

TEST_CASE_METHOD(BudgetCommands, "a keep above the limit of another scope is shown as limited",
                 "[integration]") {
  budget_json({"set", "--limit", "0.3"});
  const std::string set = budget({"set", "--model", "test/tiny", "--keep", "0.9"}).out;
  CHECK_THAT(set, Catch::Contains("0.9, limited to 0.3"));
  CHECK_THAT(set, Catch::Contains("note: keep 0.9 is above the limit 0.3 in force: puts get at "
                                  "most that"));
  CHECK_THAT(budget({"show", "--model", "test/tiny"}).out, Catch::Contains("0.9, limited to 0.3"));
  CHECK_THAT(budget({"show"}).out, Catch::Contains("0.9, limited to 0.3"));
  CHECK(store(kTokens, {}).budget == Budget::ratio(0.3).value());

  budget_json({"set", "--unset"});
  budget_json({"set", "--model", "test/tiny", "--unset"});
  budget_json({"set", "--model", "test/tiny", "--limit", "0.2"});
  REQUIRE(client->open_session("chat", {}).ok());
  budget_json({"set", "--session", "chat", "--limit", "0.1"});
  for (const bool dry_run : {true, false}) {
    std::vector<std::string> words{"set", "--keep", "0.5"};
    if (dry_run) words.emplace_back("--dry-run");
    const std::string noted = budget(words).out;
    CHECK_THAT(noted, Catch::Contains("keep 0.5 is above the limit 0.2 of model test/tiny"));
    CHECK_THAT(noted, Catch::Contains("keep 0.5 is above the limit 0.1 of session chat"));
  }
  CHECK_THAT(budget({"set", "--keep", "0.1"}).out, !Catch::Contains("note:"));
}

TEST_CASE_METHOD(BudgetCommands, "a table gives layers and heads their shares", "[integration]") {
  const json set = budget_json({"set", "--model", "test/tiny", "--recipe", "keydiff", "--layers",
                                "0=0.8,1-3=0.2", "--head", "2.1=0.4"});
  CHECK(set["effective"]["keep"]["value"].get<double>() == Approx(0.375));
  const msg::SegmentInfo stored = store(kTokens, {});
  REQUIRE(stored.plan);
  const auto share = [&](std::uint32_t layer, std::uint32_t head) {
    return static_cast<double>(stored.plan->at(layer, head)) / kTokens;
  };
  for (std::uint32_t head = 0; head < 2; ++head) {
    CHECK(share(0, head) == Approx(0.8).margin(0.02));
    CHECK(share(1, head) == Approx(0.2).margin(0.02));
    CHECK(share(3, head) == Approx(0.2).margin(0.02));
  }
  CHECK(share(2, 0) == Approx(0.2).margin(0.02));
  CHECK(share(2, 1) == Approx(0.4).margin(0.02));
  const std::string shown = budget({"show", "--model", "test/tiny"}).out;
  CHECK(shown.find("████") != std::string::npos);
  CHECK(shown.find("the newest segment, " + stored.id.hex()) != std::string::npos);

  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"set", "--model", "test/tiny"});
    const Ran ran = budget(words);
    CHECK(ran.exit_code == kUsage);
    return ran.err;
  };
  CHECK(refused({"--layers", "0-2=0.5"}).find("nothing for heads of layer 3") != std::string::npos);
  CHECK(refused({"--layers", "0-3=0.5", "--head", "1.2=0.5"}).find("KV heads 0 to 1") !=
        std::string::npos);
  CHECK_THAT(refused({"--layers", "0-3=0.2", "--head", "0.0=0.1", "--head", "0.0=0.9"}),
             Catch::Contains("head 0.0 is given twice"));
  const std::size_t profiles = client->profiles().value().size();
  CHECK(budget({"set", "--model", "test/tiny", "--layers", "0-3=0.3", "--if-revision", "99"})
            .exit_code == kConflict);
  CHECK(client->profiles().value().size() == profiles);
  CHECK(budget({"set", "--layers", "0-3=0.5"}).err.find("give --model") != std::string::npos);
}

TEST_CASE_METHOD(BudgetCommands, "a table may be in entries, and in a file", "[integration]") {
  const auto with = [](std::initializer_list<std::string> more) {
    std::vector<std::string> words{"set", "--model", "test/tiny", "--recipe", "keydiff"};
    words.insert(words.end(), more);
    return words;
  };
  const json entries = budget_json(with({"--layers", "0=320,1-3=80"}))["effective"];
  CHECK(entries["keep"]["kind"] == "entries");
  CHECK(entries["keep"]["value"] == 140);
  CHECK(store(kTokens, {}).plan.value().counts ==
        std::vector<std::uint32_t>{320, 320, 80, 80, 80, 80, 80, 80});
  CHECK_THAT(budget({"show", "--model", "test/tiny"}).out, Catch::Contains("  keydiff, table-"));

  const std::string file = dir.path("table.txt");
  std::ofstream(file) << "# as above\n0 = 320\n1-3=80  # the rest\n";
  CHECK(budget_json(with({"--table", file}))["effective"]["recipe"] == entries["recipe"]);
  CHECK(budget(with({"--table", file, "--layers", "0-3=80"})).exit_code == kUsage);
  std::ofstream(file) << "0-3=80\n1.0=0.5\n";
  const Ran mixed = budget(with({"--table", file}));
  CHECK(mixed.exit_code == kUsage);
  CHECK_THAT(mixed.err, Catch::Contains("line 2: '0-3=80' and '1.0=0.5' mix shares and entries"));
  CHECK_THAT(budget(with({"--table", dir.path("none")})).err, Catch::Contains(dir.path("none")));
}

TEST_CASE_METHOD(BudgetCommands, "a table is set for a session of its model", "[integration]") {
  const auto talk = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"set", "--session", "talk"});
    return words;
  };
  REQUIRE(client->open_session("talk", {}).ok());
  const std::vector<std::string> table = {"--recipe", "keydiff", "--layers", "0=320,1-3=80"};
  CHECK_THAT(budget(talk(table)).err, Catch::Contains("has no stored turn that says its model"));
  REQUIRE(client->advance_session("talk", store(kTokens, {}).id).ok());
  CHECK(budget(talk({"--model", "test/tiny", "--keep", "0.5"})).exit_code == kUsage);
  const json dry =
      budget_json(talk({"--recipe", "keydiff(encoding=int8)", "--layers", "0-3=0.2", "--dry-run"}));
  CHECK(dry["next_put"]["segment"] == client->session("talk").value().tip.hex());
  budget_json(talk(table));
  PutOptions how;
  how.session = "talk";
  const std::vector<std::uint32_t> of_table = {320, 320, 80, 80, 80, 80, 80, 80};
  CHECK(store(kTokens, how).plan.value().counts == of_table);
  CHECK(store(kTokens, {}).plan.value().counts != of_table);
}

TEST_CASE_METHOD(BudgetCommands, "a dry run of a table tells what the next put keeps",
                 "[integration]") {
  const auto dry = [](const std::string& recipe, const std::string& layers) {
    return std::vector<std::string>{"set",      "--dry-run", "--model",  "test/tiny",
                                    "--recipe", recipe,      "--layers", layers};
  };
  const auto table = dry("kvdiff", "0=0.8,1-3=0.2");
  CHECK(budget_json(table)["next_put"]["segment"].is_null());
  CHECK_THAT(budget(table).out,
             Catch::Contains("the model has no stored segment: only a put can tell"));
  const auto tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  PutOptions how = keeping(1);
  how.recipe = "kvdiff";
  const auto whole = put_all(*client, model, tokens, kv, how).value();

  const json next = budget_json(table)["next_put"];
  CHECK(next["segment"] == whole.id.hex());
  CHECK(next["tokens"] == kTokens);
  CHECK(next["kept_mass"].size() == 4);
  CHECK_THAT(budget(table).out,
             Catch::Contains("the next put like segment " + whole.id.hex() + " (400 tokens): ") &&
                 Catch::Contains(" by the stored scores\n") && !Catch::Contains("fewer entries") &&
                 !Catch::Contains("the old recipe"));
  CHECK_THAT(budget(dry("keydiff", "0-3=0.2")).out,
             Catch::Contains("these scores are of the old recipe: only a put can tell"));
  CHECK(budget(dry("lagkv", "0-3=0.2")).exit_code == kUsage);  // it takes no table

  budget_json({"set", "--model", "test/tiny", "--recipe", "kvdiff", "--layers", "0=0.8,1-3=0.2"});
  const auto put = put_all(*client, model, tokens, kv, {}).value();
  REQUIRE(put.id != whole.id);
  CHECK(next["stored_bytes"] == put.stored_bytes);
  CHECK_THAT(budget(dry("kvdiff", "0-3=0.5")).out,
             Catch::Contains("of 6 heads the segment stores fewer entries than a put would keep"));
}

TEST_CASE_METHOD(BudgetCommands, "a dry run without a table tells what the next put keeps",
                 "[integration]") {
  const auto tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  PutOptions how = keeping(0.6);
  how.recipe = "";
  const auto whole = put_all(*client, model, tokens, kv, how).value();
  const auto next = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"set", "--dry-run"});
    return budget_json(words)["next_put"];
  };
  const auto stored_at = [&](const Budget& keep) {
    return client->trim_segment(whole.id, keep, Durability::kWal, /*dry_run=*/true)->stored_bytes;
  };
  const std::uint64_t half = stored_at(Budget::ratio(0.5).value());
  const std::uint64_t less = stored_at(Budget::ratio(0.4).value());
  REQUIRE(less < half);
  CHECK(next({"--keep", "0.4"})["segment"] == whole.id.hex());
  CHECK(next({"--keep", "0.4"})["stored_bytes"] == less);
  CHECK(next({"--model", "test/tiny", "--keep", "0.4"})["stored_bytes"] == less);
  CHECK(next({"--keep", "0.4"})["note"] == "");
  CHECK(next({"--keep", "0.4"})["keep"]["value"] == 0.4);
  budget_json({"set", "--limit", "0.5"});
  const json limited = next({"--model", "test/tiny", "--keep", "0.6"});
  CHECK(limited["stored_bytes"] == half);
  CHECK(limited["keep"]["value"] == 0.5);
  budget_json({"set", "--limit", "none"});
  CHECK_THAT(next({"--keep", "0.9"})["note"].get<std::string>(),
             Catch::Contains("only a put can tell what it keeps: a budget of 0.9"));
  CHECK_THAT(next({"--limit", "0.1"})["note"].get<std::string>(),
             Catch::Contains("a limit below the recipe's min_entries"));
  budget_json({"set", "--model", "test/tiny", "--keep", "0.5"});  // it has its own now
  CHECK(next({"--keep", "0.4"})["stored_bytes"] == half);
  CHECK(next({"--model", "test/tiny", "--unset"})["stored_bytes"] ==
        stored_at(Budget::ratio(0.3).value()));
}

TEST_CASE_METHOD(BudgetCommands, "a dry run says what only a put can tell", "[integration]") {
  store(kTokens, keeping(0.6));
  for (const auto& [option, value, note] :
       {std::array{"--recipe", "knorm", "only a put can tell"},
        std::array{"--keep", "loss 0.05", "a put would be refused: keep 'loss 0.05' needs"}}) {
    std::vector<std::string> all{"set", "--dry-run", option, value};
    const Ran told = budget(all);
    CHECK(told.exit_code == kOk);
    CHECK_THAT(told.out, Catch::StartsWith(std::string("the change is valid\n") + note));
    CHECK_FALSE(budget_json(all).contains("stored"));
    all.emplace_back("--apply-to-stored");  // which would be refused
    CHECK(budget(all).exit_code == kUsage);
  }
  const auto with = [&](const char* recipe) {
    return budget({"set", "--dry-run", "--recipe", recipe, "--keep", "0.2"}).out;
  };
  CHECK_THAT(with("knorm(encoding=int8)"),
             Catch::Contains("only a put can tell what this recipe keeps") &&
                 Catch::Contains("would trim 1 segment"));
  CHECK_THAT(with("global_kvdiff(min_entries=128)"), Catch::Contains("rows of another encoding"));
}

TEST_CASE_METHOD(BudgetCommands, "a dry run tells exactly what applying to stored segments does",
                 "[integration]") {
  const auto first = store(kTokens, keeping(0.6)), second = store(300, keeping(0.5));
  PutOptions little = keeping(0.1);
  little.recipe = "keydiff";
  const auto small = store(kTokens, little);
  const json tried = budget_json({"set", "--keep", "0.4", "--dry-run"});
  CHECK(tried["dry_run"] == true);
  CHECK(budget_json({"show"})["effective"]["version"] == 0);
  CHECK(client->segment(first.id).value() == first);
  const json dry = tried["stored"];
  CHECK(dry["dry_run"] == true);
  CHECK(dry["segments"] == 2);  // `small` stores less
  CHECK(dry["trimmed_segments"] == 2);
  CHECK(dry["kept_mass"].size() == 4);
  CHECK(budget({"set", "--keep", "0.4", "--dry-run"}).out.find("score mass kept: ") !=
        std::string::npos);

  const json done = budget_json({"set", "--keep", "0.4", "--apply-to-stored"});
  CHECK(effect_of(done["stored"]) == effect_of(dry));
  CHECK(done["stored"]["state"] == "done");
  CHECK(client->segment(small.id).value() == small);
  CHECK(client->segment(first.id).value().trimmed == Budget::ratio(0.4).value());
  CHECK(client->segment(second.id).value().stored_bytes +
            client->segment(first.id).value().stored_bytes ==
        dry["stored_bytes"].get<std::uint64_t>());
  CHECK(budget_json({"show"})["effective"]["keep"]["value"] == 0.4);
  CHECK(budget({"set", "--recipe", "knorm", "--apply-to-stored"}).exit_code == kUsage);
}

TEST_CASE_METHOD(BudgetCommands, "a dry run says which scopes have another budget of their own",
                 "[integration]") {
  store(kTokens, keeping(0.6));
  budget_json({"set", "--model", "test/tiny", "--keep", "0.8"});
  const std::string dry = budget({"set", "--keep", "0.2", "--dry-run"}).out;
  CHECK_THAT(dry, Catch::Contains("would trim 0 segments"));
  CHECK_THAT(dry, Catch::Contains("not trimmed: segments of test/tiny, where another budget is "
                                  "set\n"));
  CHECK_THAT(budget({"set", "--model", "test/tiny", "--keep", "0.2", "--dry-run"}).out,
             !Catch::Contains("another budget"));
}

TEST_CASE_METHOD(BudgetCommands, "a rollback tells what it does to stored segments, and does it",
                 "[integration]") {
  ModelSpec spec = tiny_model();
  spec.name = "test/other";
  const Model other = client->register_model(spec).value();
  budget_json({"set", "--keep", "0.2", "--limit", "0.25"});
  budget_json({"set", "--model", "test/other", "--keep", "0.7", "--limit", "0.8"});
  budget_json({"set", "--keep", "0.6", "--limit", "0.9"});
  const auto stored = store(kTokens, keeping(0.6));
  REQUIRE(put_all(*client, other, random_tokens(random, 300), random_kv(random, other.spec, 0, 300),
                  keeping(0.5))
              .ok());

  // Both models get 0.2 again.
  const json of_other = budget_json({"rollback", "1", "--dry-run"})["stored"];
  CHECK(of_other["segments"] == 2);
  budget_json({"set", "--model", "test/other", "--keep", "0.4"});
  const json dry = budget_json({"rollback", "3", "--dry-run"})["stored"];
  CHECK(dry["segments"] == 0);  // from 0.4 to 0.7

  const json plan = budget_json({"rollback", "1", "--dry-run"});
  CHECK(plan["dry_run"] == true);
  CHECK(client->segment(stored.id).value() == stored);
  CHECK(budget_json({"log"})["newest"] == 4);
  CHECK(plan["stored"]["freed_bytes"].get<std::uint64_t>() > 0);
  CHECK(plan["stored"]["kept_mass"].size() == 4);
  CHECK(budget({"rollback", "1", "--dry-run"}).out.find("score mass kept: ") != std::string::npos);

  const json done = budget_json({"rollback", "1", "--apply-to-stored"});
  CHECK(done["stored"]["dry_run"] == false);
  CHECK(effect_of(done["stored"]) == effect_of(plan["stored"]));
  CHECK(client->segment(stored.id).value().trimmed == Budget::ratio(0.2).value());
  CHECK(budget_json({"show"})["effective"]["keep"]["value"] == 0.2);
  // A rollback to larger budgets leaves what is stored.
  const json back = budget_json({"rollback", "4", "--apply-to-stored"});
  CHECK(back["stored"]["freed_bytes"] == 0);
  budget_json({"set", "--keep", "0.3"});
  const auto above = store(kTokens, keeping(0.8));
  CHECK(budget_json({"rollback", "4", "--apply-to-stored"})["stored"]["freed_bytes"] == 0);
  CHECK(client->segment(above.id).value() == above);
  CHECK_FALSE(budget_json({"rollback", "5"}).contains("stored"));
}

TEST_CASE("the configuration's limit holds until a narrower scope sets one", "[integration]") {
  const TempDir dir;
  std::ofstream(dir.path("precisd.toml")) << "default_keep = 0.2\ndefault_limit = 0.25\n";
  const ServiceProcess service(dir, {"--config", dir.path("precisd.toml")});
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(20261127);
  PutOptions how;
  how.recipe = "keydiff";
  how.keep = Budget::ratio(0.5).value();
  const auto begun = [&] {
    return client->begin_put(model, random_tokens(random, kTokens), how).value().begun();
  };
  CHECK(begun().limited);
  CHECK(begun().budget == Budget::ratio(0.25).value());
  const msg::Budgets shown = client->budgets({}).value();
  CHECK(shown.layers[1].scope == "config");
  CHECK(shown.layers[1].limit == Budget::ratio(0.25).value());
  CHECK(shown.effective.limit == Budget::ratio(0.25).value());
  msg::SetBudget wider;
  wider.limit = Budget::ratio(0.75).value();
  REQUIRE(client->set_budget(wider).ok());
  CHECK_FALSE(begun().limited);
}

}  // namespace
