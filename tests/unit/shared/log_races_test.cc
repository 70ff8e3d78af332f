// Several nodes over the logs of one object store, in random orders of all their requests, with
// answers that are lost and requests that are made late. The rows of a shard must always be those
// of its mark, and no acknowledged write may be missing.
#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "cachesvc/shared/log_tier.h"
#include "tests/unit/shared/memory_bucket.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Fault = BucketClient::Fault;

constexpr std::uint32_t kA = 5, kB = kA + kShardGroups;  // of one group
constexpr std::size_t kNodes = 3;
constexpr int kSteps = 30;  // of each node

// Runs one of several functions at a time, each on a stack of its own. At each pass() a random one
// goes on.
class Turns {
 public:
  explicit Turns(std::uint64_t seed) : random_(seed) {}
  void add(std::function<void()> run) {
    fibers_.emplace_back(std::allocator_arg, boost::context::fixedsize_stack(kStackBytes),
                         [this, run = std::move(run)](Fiber&& main) {
                           main_ = std::move(main);
                           run();
                           return std::move(main_);
                         });
  }
  void pass() { main_ = std::move(main_).resume(); }
  void run_all() {
    while (!fibers_.empty()) {
      const auto at = fibers_.begin() + static_cast<std::ptrdiff_t>(random_() % fibers_.size());
      *at = std::move(*at).resume();
      if (!*at) fibers_.erase(at);
    }
  }
  std::uint64_t random() { return random_(); }

 private:
  using Fiber = boost::context::fiber;
  static constexpr std::size_t kStackBytes = 256u << 10;
  std::mt19937_64 random_;
  std::vector<Fiber> fibers_;
  Fiber main_;
};

using Rows = std::map<std::string, std::string>;
using Version = std::pair<std::string, std::uint64_t>;  // an instance, and its writes

using Acknowledged = std::map<std::string, std::uint64_t>;  // the writes of each instance

// The rows that nodes intended to write, and the writes that were acknowledged. Only the node whose
// turn it is uses the model.
struct Model {
  std::map<Version, Rows> rows;
  std::map<std::string, Version> parents;  // of an instance: the version that it took
  Acknowledged acknowledged;
  std::set<std::string> problems;
};

// Whether the history of the version has all of these writes that belong to the shard.
bool has_all(const Model& model, const Acknowledged& some, std::uint32_t shard, Version version) {
  Acknowledged history;
  for (; !version.first.empty(); version = model.parents.at(version.first)) {
    history[version.first] = version.second;
  }
  return std::ranges::all_of(some, [&](const auto& each) {
    const auto found = history.find(each.first);
    return !each.first.ends_with("-" + std::to_string(shard)) ||
           (found != history.end() && found->second >= each.second);
  });
}

Version version_of(const std::optional<ShardMark>& mark) {
  return mark ? Version{mark->instance, mark->sequence} : Version{};
}

struct Race {
  explicit Race(std::uint64_t seed) : turns(seed) {}
  Turns turns;
  MemoryBucket bucket{3};
  struct Late {
    std::string name;
    std::function<void()> make;
  };
  std::deque<Late> late;
  Model model;

  Fault next() {
    turns.pass();
    // A late request is most likely to be made when it does harm, which is when the object that it
    // writes was there and has been removed.
    for (std::size_t n = late.size(); n-- > 0;) {
      if (turns.random() % (bucket.was_removed(late[n].name) ? 3 : 60) != 0) continue;
      late[n].make();
      late.erase(late.begin() + static_cast<std::ptrdiff_t>(n));
    }
    switch (turns.random() % 30) {
      case 0: return Fault::kRefused;
      case 1: return Fault::kAnswerLost;
      case 2:
      case 3: return Fault::kLate;
      default: return Fault::kNone;
    }
  }
};

// A node that takes shards, writes to them, and looks at them.
class Node {
 public:
  Node(Race& race, std::size_t number) : race_(race), number_(number) {
    const BucketClient::Faults faults{[this] { return race_.next(); },
                                      [this](const std::string& name, std::function<void()> make) {
                                        race_.late.push_back({name, std::move(make)});
                                      }};
    // One node keeps rows and records in memory, one only rows, and one only records.
    tier_ = make_log_tier(std::make_unique<BucketClient>(race.bucket, faults),
                          {.prefix = "races",
                           .snapshot_after = 3,
                           .rows_bytes_max = number == 2 ? 0u : 64u << 20,
                           .records_bytes_max = number == 1 ? 0u : 1u << 18,
                           .tidier = nullptr});
  }
  void run() {
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t kind = random() % 9;
      const std::uint32_t shard = random() % 2 == 0 ? kA : kB;
      if (kind == 0) take({kA, kB});
      if (kind == 1) take({shard});
      if (kind == 2 || kind == 3) look(shard);
      if (kind > 3) write(shard);
    }
  }

 private:
  std::uint64_t random() { return race_.turns.random(); }
  // Repeats a call as callers do while its outcome is unknown.
  template <typename Call>
  Status repeat(const Call& call) {
    Status status = call();
    for (int n = 0; n < 4 && status.code() == StatusCode::kUnavailable; ++n) status = call();
    return status;
  }
  void expect(bool holds, const std::string& what) {
    if (!holds) race_.model.problems.insert(what);
  }
  void expect_code(const Status& status, StatusCode other) {
    expect(status.ok() || status.code() == StatusCode::kUnavailable || status.code() == other,
           status.to_string());
  }

  void take(const std::vector<std::uint32_t>& shards) {
    const auto marks = tier_->marks(shards);
    if (!marks.ok()) return expect_code(marks.status(), StatusCode::kUnavailable);
    std::vector<SharedTier::Change> changes;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string instance = std::to_string(number_) + "-" + std::to_string(++takes_) + "-" +
                                   std::to_string(shards[i]);
      const auto& from = (*marks)[i];
      changes.push_back({shards[i], from, {from ? from->epoch + 1 : 1, 0, false, "n", instance}});
      race_.model.parents[instance] = version_of(from);
      race_.model.rows[{instance, 0}] = race_.model.rows[version_of(from)];
      held_.erase(shards[i]);
    }
    const Status taken = repeat([&] { return tier_->change_marks(changes); });
    expect_code(taken, StatusCode::kConflict);
    for (const auto& change : changes) {
      if (!taken.ok()) continue;
      held_[change.shard] = change.to;
      race_.model.acknowledged[change.to.instance] = 0;
    }
  }
  void write(std::uint32_t shard) {
    const auto held = held_.find(shard);
    if (held == held_.end()) return;
    ShardMark& mark = held->second;
    Rows rows = race_.model.rows[version_of(mark)];
    SharedBatch batch;
    const std::string text = mark.instance + "/" + std::to_string(mark.sequence);
    for (const std::string& key : {std::string("last"), text}) {
      batch.puts.emplace_back(key, bytes_of(text));
      rows[key] = text;
    }
    if (rows.size() > 6) {
      batch.deletes.push_back(rows.begin()->first);
      rows.erase(rows.begin());
    }
    race_.model.rows[{mark.instance, mark.sequence + 1}] = rows;
    const Status written = repeat([&] { return tier_->write(shard, mark, batch); });
    expect_code(written, StatusCode::kMoved);
    if (!written.ok()) {
      held_.erase(held);
      return;
    }
    race_.model.acknowledged[mark.instance] = ++mark.sequence;
  }
  // Checks that the rows are those of the mark, if the mark did not change meanwhile.
  void look(std::uint32_t shard) {
    const std::vector<std::uint32_t> shards = {shard};
    const Acknowledged earlier = race_.model.acknowledged;
    const auto before = tier_->marks(shards);
    Rows found;
    const Status read =
        tier_->scan(shards, [&](std::uint32_t, std::string_view key, Bytes value) -> Status {
          found[std::string(key)] = {reinterpret_cast<const char*>(value.data()), value.size()};
          return {};
        });
    const auto after = tier_->marks(shards);
    for (const Status& status : {before.status(), read, after.status()}) {
      expect_code(status, StatusCode::kUnavailable);
      if (!status.ok()) return;
    }
    const Version version = version_of(before->front());
    expect(has_all(race_.model, earlier, shard, version), "marks are old");
    if (before->front() != after->front()) return;
    expect(found == race_.model.rows[version],
           "rows are not those of " + version.first + "/" + std::to_string(version.second));
  }

  Race& race_;
  const std::size_t number_;
  std::unique_ptr<SharedTier> tier_;
  std::map<std::uint32_t, ShardMark> held_;
  int takes_ = 0;
};

// Every acknowledged write is in the history of the last mark.
void check_history(Race& race, SharedTier& tier, std::uint32_t shard) {
  const auto mark = tier.marks({{shard}}).value().front();
  const Version version = version_of(mark);
  Rows found;
  for (const auto& [name, value] : rows_of(tier, {shard})) {
    found[name.second] = {reinterpret_cast<const char*>(value.data()), value.size()};
  }
  CHECK(found == race.model.rows[version]);
  CHECK(has_all(race.model, race.model.acknowledged, shard, version));
}

}  // namespace

TEST_CASE("no order of requests to an object store loses a write or lets a former holder write",
          "[unit][shared]") {
  std::size_t writes = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Race race(seed);
    std::vector<std::unique_ptr<Node>> nodes;
    for (std::size_t n = 0; n < kNodes; ++n) nodes.push_back(std::make_unique<Node>(race, n));
    for (const auto& node : nodes) race.turns.add([&] { node->run(); });
    race.turns.run_all();
    for (const auto& each : race.late) each.make();
    CAPTURE(seed);
    CHECK(race.model.problems == std::set<std::string>());
    const auto tier = make_log_tier(std::make_unique<BucketClient>(race.bucket),
                                    {.prefix = "races", .tidier = nullptr});
    check_history(race, *tier, kA);
    check_history(race, *tier, kB);
    for (const auto& [instance, sequence] : race.model.acknowledged) writes += sequence;
  }
  CHECK(writes > 5000);  // the nodes do not only fail
}
