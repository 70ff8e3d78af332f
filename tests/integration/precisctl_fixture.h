// A precisd with one model, and precisctl on it, as scripts use it.
#pragma once

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

// Exit codes of precisctl.
enum : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kUnreachable = 4,
  kDenied = 5,
  kConflict = 6,
  kStopped = 130
};

class PrecisctlFixture {
 protected:
  using json = nlohmann::json;

  TempDir dir;
  ServiceProcess service{dir};
  std::shared_ptr<Client> client = service.connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{20261126};

  std::vector<std::string> command(std::vector<std::string> words) const {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", service.address()});
    return words;
  }
  // Runs precisctl without a terminal on standard input.
  Ran ctl(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"/bin/sh", "-c", "exec \"$0\" \"$@\" </dev/null"};
    const auto whole = command(words);
    all.insert(all.end(), whole.begin(), whole.end());
    return run(all);
  }
  json ctl_json(std::vector<std::string> words) const {
    words.push_back("--json");
    const Ran ran = ctl(words);
    INFO(ran.err);
    REQUIRE(ran.exit_code == kOk);
    return json::parse(ran.out);
  }
  Ran budget(std::vector<std::string> words) const {
    words.insert(words.begin(), "budget");
    return ctl(words);
  }
  json budget_json(std::vector<std::string> words) const {
    words.insert(words.begin(), "budget");
    return ctl_json(std::move(words));
  }
  // A put of random tokens.
  msg::SegmentInfo store(std::uint32_t num_tokens, const PutOptions& how) {
    const auto stored = put_all(*client, model, random_tokens(random, num_tokens),
                                random_kv(random, model.spec, 0, num_tokens), how);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return *stored;
  }
};

}  // namespace precis::testing
