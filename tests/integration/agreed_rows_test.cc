// Rows that are the same at several nodes, with a real etcd.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/cluster/agreed_rows.h"
#include "cachesvc/cluster/view.h"
#include "tests/integration/etcd_members.h"

namespace {

using namespace precis;
using namespace precis::cluster;
using namespace precis::testing;
using Rows = std::vector<AgreedRow>;
using Catch::Matchers::Contains;

// The machine's runtime, with a clock that can be set forward.
class LateRuntime final : public Runtime {
 public:
  class LateClock final : public Clock {
   public:
    std::uint64_t unix_ms() const override { return real_.unix_ms(); }
    std::uint64_t monotonic_ns() const override { return real_.monotonic_ns() + late_ns_; }
    std::atomic<std::uint64_t> late_ns_ = 0;

   private:
    const SystemClock real_{};
  };
  const Clock& clock() const override { return clock_; }
  std::unique_ptr<EventLoop> make_loop() override { return real_.make_loop(); }
  std::unique_ptr<Executor> make_executor(std::string name, unsigned threads) override {
    return real_.make_executor(std::move(name), threads);
  }
  std::uint64_t random() override { return real_.random(); }
  void pass(std::chrono::seconds time) {
    clock_.late_ns_ += static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
  }

 private:
  MachineRuntime real_;
  LateClock clock_;
};

class Copy final : public AgreedCopy {
 public:
  Result<Rows> rows() override {
    Rows all;
    for (const auto& [key, value] : has) all.push_back({key, value});
    return all;
  }
  Status take(Rows rows, LeftOut& left_out) override {
    if (fails) return Status::out_of_space("the copy is full");
    for (AgreedRow& row : rows) {
      ++taken;
      if (row.key.starts_with("odd") && row.value == "odd") {
        left_out[row.key] = Status::unsupported("an odd row");
      } else if (row.value) {
        has[row.key] = std::move(*row.value);
      } else {
        has.erase(row.key);
      }
    }
    return {};
  }
  Rows own_changes() override { return {}; }
  std::string identity() const override { return "identity"; }

  std::map<std::string, std::string> has;
  std::size_t taken = 0;
  bool fails = false;
};

struct Peer {
  explicit Peer(const EtcdMembers& etcd, std::map<std::string, std::string> has = {},
                Runtime* use = nullptr)
      : rows({parse_etcd_urls(etcd.urls()).value(), nullptr, "agreed", std::chrono::seconds(1)},
             use ? *use : runtime, log, with(copy, std::move(has))) {}
  static Copy& with(Copy& copy, std::map<std::string, std::string> has) {
    copy.has = std::move(has);
    return copy;
  }
  Status put(const std::string& key, const std::optional<std::string>& value) {
    return rows.change([&]() -> Result<Rows> { return Rows{{key, value}}; });
  }

  // Tries again until etcd answers, because etcd may just have stood still.
  void catch_up() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    Status status = rows.catch_up();
    while (!status.ok() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      status = rows.catch_up();
    }
    REQUIRE(status == Status());
  }

  MachineRuntime runtime;
  Log log{Log::Level::kError};
  Copy copy;
  AgreedRows rows;
};

std::string noise(std::mt19937& random, std::size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The number of rows in etcd whose keys begin with `prefix`.
std::size_t count_below(const EtcdMembers& etcd, const std::string& prefix) {
  return Etcd(parse_etcd_urls(etcd.urls()).value()).read(prefix).value().rows.size();
}

}  // namespace

TEST_CASE("rows of any size and any bytes are the same at all nodes", "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer a(etcd), b(etcd);
  std::mt19937 random(1);
  std::map<std::string, std::string> expected;
  for (const std::size_t size : {0u, 1u, 8191u, 8192u, 8193u, 524'288u, 3'000'000u}) {
    const std::string key = noise(random, 20) + std::to_string(size);
    expected[key] = noise(random, size);
    REQUIRE(a.put(key, expected[key]).ok());
  }
  CHECK(a.copy.has == expected);
  REQUIRE(b.rows.catch_up().ok());
  CHECK(b.copy.has == expected);
  const std::size_t parts = count_below(etcd, "precis-agreed/agreed/parts/");
  CHECK(parts == 1 + 1 + 6);
  // Replaced and removed values leave nothing behind.
  for (auto& [key, value] : expected) {
    value = value.substr(0, 100) + "new";
    REQUIRE(b.put(key, value).ok());
  }
  REQUIRE(a.rows.catch_up().ok());
  CHECK(a.copy.has == expected);
  CHECK(count_below(etcd, "precis-agreed/agreed/parts/") == 0);
  for (const auto& [key, value] : expected) REQUIRE(a.put(key, std::nullopt).ok());
  REQUIRE(b.rows.catch_up().ok());
  CHECK(b.copy.has.empty());
  CHECK(count_below(etcd, "precis-agreed/agreed/") == 0);
}

TEST_CASE("the first node brings its rows, and a later one takes the cluster's",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  std::map<std::string, std::string> many;
  for (int i = 0; i < 250; ++i) many["row " + std::to_string(i)] = std::to_string(i);
  Peer first(etcd, many);
  REQUIRE(first.rows.catch_up().ok());
  CHECK(first.copy.taken == 0);
  Peer later(etcd, {{"row 1", "1"}, {"row 2", "another"}, {"old", "gone"}});
  CHECK_FALSE(later.rows.known());
  REQUIRE(later.rows.catch_up().ok());
  CHECK(later.rows.known());
  CHECK(later.copy.has == many);
  CHECK(later.copy.taken == 250);  // all but the equal one, and the removed one
  // Rows that did not change are not taken again.
  later.copy.taken = 0;
  REQUIRE(first.put("row 3", "changed").ok());
  REQUIRE(later.rows.catch_up().ok());
  CHECK(later.copy.taken == 1);
}

TEST_CASE("rows that the first node has not written to the end are completed",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Etcd direct(parse_etcd_urls(etcd.urls()).value());
  REQUIRE(direct.write({agreed_key("agreed"), R"({"format":1,"complete":false,"by":"another"})", 0})
              .ok());
  REQUIRE(direct.write({"precis-agreed/agreed/rows/theirs", "=1", 0}).ok());
  LateRuntime runtime;
  Peer peer(etcd, {{"ours", "2"}}, &runtime);
  CHECK(peer.rows.catch_up().code() == StatusCode::kRejected);
  CHECK_FALSE(peer.rows.known());
  runtime.pass(std::chrono::seconds(31));
  REQUIRE(peer.rows.catch_up().ok());
  CHECK(peer.copy.has == std::map<std::string, std::string>{{"ours", "2"}, {"theirs", "1"}});
  Peer later(etcd);
  REQUIRE(later.rows.catch_up().ok());
  CHECK(later.copy.has == peer.copy.has);
}

TEST_CASE("changes that nodes make at the same time are all made, one after another",
          "[integration][cluster]") {
  const EtcdMembers etcd(3);
  Peer a(etcd), b(etcd), c(etcd);
  REQUIRE(a.rows.catch_up().ok());
  constexpr int kEach = 20;
  const auto count_up = [](Peer& peer) {
    for (int i = 0; i < kEach; ++i) {
      const Status status = peer.rows.change([&]() -> Result<Rows> {
        const auto found = peer.copy.has.find("count");
        const int now = found == peer.copy.has.end() ? 0 : std::stoi(found->second);
        return Rows{{"count", std::to_string(now + 1)}};
      });
      if (!status.ok()) --i;
    }
  };
  std::vector<std::thread> threads;
  for (Peer* const peer : {&a, &b, &c}) threads.emplace_back([&, peer] { count_up(*peer); });
  for (std::thread& thread : threads) thread.join();
  for (Peer* const peer : {&a, &b, &c}) {
    REQUIRE(peer->rows.catch_up().ok());
    CHECK(peer->copy.has["count"] == std::to_string(3 * kEach));
  }
}

TEST_CASE("a plan that fails over an old copy is made again over the present one",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer a(etcd), b(etcd);
  REQUIRE(b.rows.catch_up().ok());
  REQUIRE(a.put("a", "1").ok());
  const auto change = [&](const std::string& key) {
    return b.rows.change([&]() -> Result<Rows> {
      if (!b.copy.has.contains(key)) return Status::not_found("no " + key);
      return Rows{{"b", "2"}};
    });
  };
  CHECK(change("a").ok());
  CHECK(change("c").code() == StatusCode::kNotFound);
  CHECK(change("c").message() == "no c");
  CHECK(b.copy.has.size() == 2);
  // A plan without rows changes nothing.
  CHECK(b.rows.change([]() -> Result<Rows> { return Rows(); }).ok());
  Rows large;
  for (int i = 0; i < 101; ++i) large.push_back({std::to_string(i), "1"});
  CHECK(b.rows.change([&]() -> Result<Rows> { return large; }).code() == StatusCode::kOutOfSpace);
}

TEST_CASE("what a copy can't store or does not understand is told, and taken later",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer a(etcd), b(etcd);
  REQUIRE(a.put("a", "1").ok());
  b.copy.fails = true;
  CHECK_FALSE(b.rows.catch_up().ok());
  CHECK_FALSE(b.rows.known());
  b.copy.fails = false;
  REQUIRE(b.rows.catch_up().ok());
  b.copy.fails = true;
  const Status made = b.put("b", "2");
  CHECK(made.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(made.message(), Contains("the change is made"));
  REQUIRE(a.rows.catch_up().ok());
  CHECK(a.copy.has["b"] == "2");
  b.copy.fails = false;
  REQUIRE(b.rows.catch_up().ok());
  CHECK(b.copy.has["b"] == "2");

  REQUIRE(a.put("odd", "odd").ok());
  Etcd direct(parse_etcd_urls(etcd.urls()).value());
  const auto note = [&] {
    const Etcd::Row row = direct.read_one(agreed_key("agreed")).value().rows.front();
    b.rows.note(row.revision, row.value);
  };
  note();
  while (b.rows.problem().ok()) std::this_thread::yield();
  CHECK(b.rows.problem().message() == "an odd row");
  CHECK(b.copy.has == std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}});
  REQUIRE(a.put("odd", "3").ok());
  note();
  while (!b.rows.problem().ok()) std::this_thread::yield();
  CHECK(b.copy.has["odd"] == "3");
}

TEST_CASE("a change after one that the copy could not store is planned over both",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer a(etcd);
  const auto count_up = [&] {
    return a.rows.change([&]() -> Result<Rows> {
      const auto found = a.copy.has.find("count");
      const int now = found == a.copy.has.end() ? 0 : std::stoi(found->second);
      return Rows{{"count", std::to_string(now + 1)}};
    });
  };
  REQUIRE(count_up().ok());
  a.copy.fails = true;
  CHECK_FALSE(count_up().ok());
  a.copy.fails = false;
  REQUIRE(count_up().ok());
  CHECK(a.copy.has["count"] == "3");
}

TEST_CASE("a change whose answer is lost is made once, or not, and is never taken for another's",
          "[integration][cluster]") {
  EtcdMembers etcd(3);
  Peer a(etcd);
  REQUIRE(a.rows.catch_up().ok());
  std::atomic<bool> stop = false;
  // Members of etcd stand still for longer than an answer may take, one after another.
  std::thread faults([&] {
    for (std::size_t member = 0; !stop; member = (member + 1) % 3) {
      etcd.pause(member, std::chrono::milliseconds(1500));
    }
  });
  std::mt19937 random(1);
  std::map<std::string, std::string> made;
  int others = 0, unsure = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(12);
  for (int i = 0; std::chrono::steady_clock::now() < until; ++i) {
    const std::string key = "row " + std::to_string(i);
    const std::string value = noise(random, i % 3 == 0 ? 20'000 : 20);
    // This plan refuses a key that is there already.
    const Status status = a.rows.change([&]() -> Result<Rows> {
      if (a.copy.has.contains(key)) return Status::conflict("there is one already");
      return Rows{{key, value}};
    });
    if (status.ok()) made[key] = value;
    others += status.code() == StatusCode::kConflict ? 1 : 0;
    unsure += status.code() == StatusCode::kUnavailable ? 1 : 0;
  }
  stop = true;
  faults.join();
  CHECK(others == 0);
  CHECK(made.size() > 5);
  Peer b(etcd);
  a.catch_up();
  b.catch_up();
  CHECK(b.copy.has == a.copy.has);
  CHECK(b.copy.has.size() <= made.size() + static_cast<std::size_t>(unsure));
  for (const auto& [key, value] : made) CHECK(b.copy.has[key] == value);
}

TEST_CASE("a node of another cluster keeps its rows and does not join", "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer first(etcd, {{"identity", "one"}, {"a", "1"}});
  REQUIRE(first.rows.join().ok());
  const std::map<std::string, std::string> others{{"identity", "two"}, {"b", "2"}};
  Peer other(etcd, others);
  CHECK(other.rows.join().code() == StatusCode::kVersionMismatch);
  CHECK_FALSE(other.rows.known());
  CHECK(other.copy.has == others);
  // It does not join a cluster without a name either: a new node may have begun that cluster.
  REQUIRE(first.put("identity", std::nullopt).ok());
  CHECK(other.rows.join().code() == StatusCode::kVersionMismatch);
  CHECK(other.copy.has == others);
}

TEST_CASE("rows that etcd has from a backup are taken, also under revisions that were read before",
          "[integration][cluster]") {
  EtcdMembers etcd;
  Etcd direct(parse_etcd_urls(etcd.urls()).value());
  Peer a(etcd), b(etcd);
  const auto start = [&] {
    etcd.start(0);
    while (!direct.read("any/").ok()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  REQUIRE(a.put("a", "before").ok());
  etcd.kill(0);
  etcd.save(0);
  start();
  REQUIRE(a.put("a", "undone").ok());
  REQUIRE(b.rows.catch_up().ok());
  const auto changed = [&] {
    return direct.read_one(agreed_key("agreed")).value().rows.front().revision;
  };
  const std::uint64_t undone = changed();
  etcd.kill(0);
  etcd.restore(0);
  start();
  // After the restore, other changes reach the revision of the undone change, or pass it.
  const int more = GENERATE(1, 3);
  Peer c(etcd);
  for (int i = 0; i < more; ++i) REQUIRE(c.put("c", std::to_string(i)).ok());
  CHECK((changed() == undone) == (more == 1));
  REQUIRE(b.rows.catch_up().ok());
  CHECK(b.copy.has ==
        std::map<std::string, std::string>{{"a", "before"}, {"c", std::to_string(more - 1)}});
}

TEST_CASE("rows in etcd that are none of Precis, or of another format, are refused",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Etcd direct(parse_etcd_urls(etcd.urls()).value());
  Peer peer(etcd);
  const std::string key = agreed_key("agreed");
  SECTION("the version is no JSON") {
    REQUIRE(direct.write({key, "hello", 0}).ok());
    CHECK_THAT(peer.rows.catch_up().message(), Contains("is none of Precis"));
    CHECK_FALSE(peer.put("a", "1").ok());
  }
  SECTION("the format is another") {
    REQUIRE(direct.write({key, R"({"format":2,"complete":true})", 0}).ok());
    CHECK_THAT(peer.rows.catch_up().message(), Contains("format 2"));
    CHECK_FALSE(peer.put("a", "1").ok());
  }
  SECTION("a row has another form") {
    REQUIRE(peer.put("a", "1").ok());
    for (const char* value : {"", "x", "/", "/1", "/1 x", "/1 99999", "/1 -1", "/1 1"}) {
      REQUIRE(direct.write({"precis-agreed/agreed/rows/b" + std::string(value), value, 0}).ok());
    }
    Peer later(etcd);
    REQUIRE(later.rows.catch_up().ok());
    CHECK(later.copy.has == peer.copy.has);
  }
}

TEST_CASE("if etcd has lost its rows, a node that knows them brings them again",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Peer a(etcd), b(etcd);
  REQUIRE(a.put("a", "1").ok());
  REQUIRE(b.rows.catch_up().ok());
  Etcd direct(parse_etcd_urls(etcd.urls()).value());
  REQUIRE(direct.remove_below("precis/").ok());
  REQUIRE(direct.remove_below("precis-agreed/").ok());
  REQUIRE(b.put("b", "2").ok());
  REQUIRE(a.rows.catch_up().ok());
  CHECK(a.copy.has == std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}});
  CHECK(count_below(etcd, "precis-agreed/agreed/rows/") == 2);
}
