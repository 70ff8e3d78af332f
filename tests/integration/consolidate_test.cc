// Consolidation: a growing chain of small segments stays a few segments, and readers get the same
// rows.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/integration/options.h"
#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261127;
constexpr std::uint32_t kTurns = 50;

// A conversation, put turn by turn into a service that consolidates, and into one that does not.
class TalkFixture : protected StoredFixture {
 protected:
  TalkFixture() : StoredFixture(kSeed) {
    std::ofstream(other_dir.path("precisd.toml")) << "consolidate = false\n";
    other_service = std::make_unique<ServiceProcess>(
        other_dir, std::vector<std::string>{"--config", other_dir.path("precisd.toml")});
    other = other_service->connect();
    other_model = other->register_model(model.spec).value();
  }
  PutOptions options(double keep = 0.5) const {
    PutOptions options;
    options.recipe = "ada_keydiff";
    options.keep = Budget::ratio(keep).value();
    return options;
  }
  void say() {
    const auto begin = static_cast<std::uint32_t>(path.size());
    const auto count = 20 + static_cast<std::uint32_t>(random() % 60);
    for (const TokenId token : random_tokens(random, count)) path.push_back(token);
    const Kv kv = random_kv(random, model.spec, begin, count);
    ids.push_back(put(path, kv, options()).id);
    ends.push_back(static_cast<std::uint32_t>(path.size()));
    const auto same = put_all(*other, other_model, path, kv, options());
    REQUIRE(same.ok());
    entries += same->entries;
  }
  std::size_t links() { return client->lookup(model, path).value().links.size(); }
  // Puts turns until the chain is short.
  void settle() {
    while (links() > 14) say();
  }

  // Waits until the service consolidates nothing more.
  void rest() {
    double before = -1;
    for (int same = 0; same < 20;) {
      const double now = stat(*client, "precis_consolidations_total");
      same = now == before ? same + 1 : 0;
      before = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  TempDir other_dir;
  std::unique_ptr<ServiceProcess> other_service;
  std::shared_ptr<Client> other;
  Model other_model;
  std::vector<TokenId> path;
  std::vector<SegmentId> ids;
  std::vector<std::uint32_t> ends;
  std::uint64_t entries = 0;
};

TEST_CASE_METHOD(TalkFixture, "a chain of 50 turns is a few segments with the same entries",
                 "[integration]") {
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) say();
  settle();
  CHECK(stat(*client, "precis_consolidations_total") > 0);
  CHECK(other->lookup(other_model, path).value().links.size() == ids.size());
  const PrefixCopy all = by_position(*read_all(*other, other_model, path));
  CHECK(by_position(read(path)) == all);
  // Every kept entry is served at the budget of the puts. A smaller budget gets a share of each
  // turn.
  CHECK(by_position(read(path, *options().keep)) == all);
  for (const double keep : {0.4, 0.2, 0.05}) {
    CAPTURE(keep);
    const Budget budget = Budget::ratio(keep).value();
    const PrefixCopy cut = read(path, budget);
    const auto of_links = read_all(*other, other_model, path, budget).value();
    // A segment's budget is rounded down to whole entries of each head, and at least one.
    const std::size_t rounding =
        std::size_t{kTurns} * model.spec.num_layers * model.spec.num_kv_heads;
    CHECK(entries_of(cut) <= entries_of(of_links) + rounding);
    CHECK(entries_of(cut) + rounding >= entries_of(of_links));
  }
  // Less is stored, and no byte is wrong.
  CHECK(stat(*client, "precis_stored_bytes") < stat(*other, "precis_stored_bytes"));
  const auto rows = client->segments().value();
  for (const auto& info : rows) {
    CHECK(client->check_segment(info.id).value().damage.empty());
  }
  CHECK(run({PRECISCTL_PATH, "--address", service->address(), "fsck"}).exit_code == 0);

  service->kill();
  restart();
  CHECK(by_position(read(path)) == all);
  // A path that ends at an earlier turn is found up to its last whole block.
  const std::vector<TokenId> earlier(path.begin(), path.begin() + ends[20]);
  CHECK(client->lookup(model, earlier).value().matched_tokens >= ends[20] / 64 * 64);
}

TEST_CASE_METHOD(TalkFixture, "old turns keep their names", "[integration]") {
  for (std::uint32_t turn = 0; turn < 20; ++turn) say();
  settle();
  rest();
  const auto now = client->segment(ids[2]).value();
  REQUIRE(now.id != ids[2]);
  CHECK(now.begin <= ends[1]);
  CHECK(now.end >= ends[2]);
  const auto trimmed = client->trim_segment(ids[2], Budget::ratio(0.1).value());
  CHECK(trimmed.status().code() == StatusCode::kConflict);
  CHECK(trimmed.status().message().find("trim segment " + now.id.hex()) != std::string::npos);
  PutOptions below = options();
  below.parent = ids[2];
  const auto put = client->begin_put(model, path, below);
  CHECK(put.status().code() == StatusCode::kNotFound);
  CHECK(put.status().message().find("consolidated into segment") != std::string::npos);
  CHECK(client->remove_segment(ids[2], /*recursive=*/false).status().code() ==
        StatusCode::kConflict);
  // The last turn, and a path that ends where the consolidated segment does, are stored already.
  CHECK(client->begin_put(model, path, options()).value().begun().already_stored);
  const std::vector<TokenId> whole(path.begin(), path.begin() + now.end);
  CHECK(client->begin_put(model, whole, options()).value().begun().already_stored);
  REQUIRE(client->trim_segment(now.id, Budget::ratio(0.1).value()).ok());
  REQUIRE(client->remove_segment(ids[2], /*recursive=*/true).ok());
  CHECK(client->lookup(model, path).value().matched_tokens <= now.begin);
}

TEST_CASE_METHOD(TalkFixture, "a path that leaves a consolidated segment splits it",
                 "[integration]") {
  for (std::uint32_t turn = 0; turn < 20; ++turn) say();
  settle();
  const PrefixCopy all = by_position(read(path));
  std::vector<TokenId> fork(path.begin(), path.begin() + ends[5] / 64 * 64);
  const auto begin = static_cast<std::uint32_t>(fork.size());
  for (const TokenId token : random_tokens(random, 30)) fork.push_back(token);
  const auto added = put(fork, random_kv(random, model.spec, begin, 30), options());
  CHECK(added.begin == begin);
  CHECK(by_position(read(path)) == all);
  CHECK(client->segment(ids[2]).value().end <= begin);  // an old id names the first part
}

TEST_CASE_METHOD(TalkFixture, "matches and gets go on while their chain is consolidated",
                 "[integration]") {
  for (std::uint32_t turn = 0; turn < 7; ++turn) say();
  const PrefixCopy first = by_position(read(path));
  const LookupMatch match = client->lookup(model, path).value();
  std::atomic<bool> done{false};
  std::atomic<int> served{0}, wrong{0};
  std::thread reader([&] {
    const auto mine = service->connect();
    while (!done.load()) {
      const auto prefix = mine->get(match);  // its links are soon replaced
      const Status status = prefix.ok() ? prefix->wait() : prefix.status();
      if (status.code() == StatusCode::kNotFound) break;  // on a machine that is slower than 10 s
      ++(status.ok() && by_position(copy_of(*prefix)) == first ? served : wrong);
    }
  });
  for (int turn = 0; turn < 8; ++turn) say();
  settle();
  CHECK(stat(*client, "precis_consolidations_total") > 0);
  done = true;
  reader.join();
  CHECK(served > 0);
  CHECK(wrong == 0);
}

TEST_CASE_METHOD(TalkFixture, "a SIGKILL around a consolidation loses nothing", "[integration]") {
  for (int i = 0; i < 6; ++i) {
    for (int turn = 0; turn < 9; ++turn) say();
    const auto spin = std::chrono::microseconds(random() % 6000);
    CAPTURE(i, spin.count());
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
    }
    service->kill();
    restart();
    CHECK(by_position(read(path)) == by_position(*read_all(*other, other_model, path)));
    const auto rows = client->segments().value();
    for (const auto& info : rows) {
      CHECK(client->check_segment(info.id).value().damage.empty());
    }
  }
}

}  // namespace
