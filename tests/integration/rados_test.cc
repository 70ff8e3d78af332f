// The shared tier in a real Ceph.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cachesvc/shared/rados_tier.h"
#include "tests/catch_runner.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/tier_writers.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

// Guards against a hang: nothing here takes so long.
constexpr std::chrono::seconds kLong{60};

std::unique_ptr<CephCluster> cluster;  // of all tests; main() makes it

std::unique_ptr<SharedTier> connect(const RadosSettings& settings) {
  auto tier = connect_rados(settings);
  INFO(tier.status().to_string());
  REQUIRE(tier.ok());
  return std::move(*tier);
}

Status failure_of(const RadosSettings& settings) {
  const auto tier = connect_rados(settings);
  REQUIRE_FALSE(tier.ok());
  return tier.status();
}

// Makes a user of Ceph. Returns a configuration that has its key.
std::string conf_of_new_user(const std::string& user, const std::string& osd_caps) {
  cluster->command(R"("prefix": "auth add", "entity": ")" + user +
                   R"(", "caps": ["mon", "allow r", "osd", ")" + osd_caps + R"("])");
  const std::string answer =
      cluster->command(R"("prefix": "auth print-key", "entity": ")" + user + '"');
  const std::size_t begin = answer.find("AQ");
  REQUIRE(begin != std::string::npos);
  const std::string key = answer.substr(begin, answer.find('"', begin) - begin);
  return cluster->conf_with("\n[" + user + "]\nkey = " + key + "\n");
}

void set_full_ratios(const std::string& nearly, const std::string& backfill,
                     const std::string& full) {
  const auto set = [](const std::string& name, const std::string& ratio) {
    cluster->command(R"("prefix": "osd set-)" + name + R"(-ratio", "ratio": )" + ratio);
  };
  set("nearfull", nearly);
  set("backfillfull", backfill);
  set("full", full);
}

}  // namespace

TEST_CASE("the shared tier in Ceph keeps the contract", "[integration][ceph]") {
  int number = 0;
  for (const auto& contract : shared_tier_contract()) {
    ++number;
    DYNAMIC_SECTION(contract.name) {
      auto settings = cluster->settings("contract-" + std::to_string(number));
      settings.piece_bytes = kContractPieceBytes;
      const auto tier = connect(settings);
      contract.run(*tier);
    }
  }
}

TEST_CASE("clusters with names of their own share a pool", "[integration][ceph]") {
  const auto a = connect(cluster->settings("name-a")), b = connect(cluster->settings("name-b"));
  const ShardMark mark{1, 0, false, "node", "instance"};
  REQUIRE(a->change_marks({{{7, {}, mark}}}).ok());
  REQUIRE(a->write_object("object", bytes_of("a")).ok());
  CHECK_FALSE(b->marks({{7}}).value().front());
  std::vector<std::byte> into(1);
  CHECK(b->read_object("object", into).code() == StatusCode::kNotFound);
}

TEST_CASE("an object of more than one piece comes back from Ceph", "[integration][ceph]") {
  const auto tier = connect(cluster->settings("large"));
  std::vector<std::byte> value(70u << 20);
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<std::byte>(i / 1000);
  REQUIRE(tier->write_object("large", value).ok());
  std::vector<std::byte> into(value.size());
  REQUIRE(tier->read_object("large", into).ok());
  CHECK((into == value));
  CHECK(tier->remove_object("large", value.size()).ok());
  CHECK(tier->read_object("large", into).code() == StatusCode::kNotFound);
}

TEST_CASE("a batch that is too large for Ceph is refused", "[integration][ceph]") {
  const auto tier = connect(cluster->settings("too-large"));
  SharedBatch batch;
  batch.puts.emplace_back("k", std::vector<std::byte>(95u << 20));
  CHECK(tier->write_common(batch).code() == StatusCode::kInvalidArgument);
  CHECK(common_rows_of(*tier).empty());
}

TEST_CASE("what prevents a connection to Ceph is told", "[integration][ceph]") {
  auto settings = cluster->settings("refused");
  SECTION("the configuration is absent") {
    settings.ceph_conf = "/does/not/exist.conf";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Contains("/does/not/exist.conf") && Contains("No such file"));
  }
  SECTION("the configuration names no monitor") {
    settings.ceph_conf = cluster->conf_with("\n[client]\nmon_host =\n");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Contains("mon_host"));
  }
  SECTION("the name is that of no user") {
    settings.user = "precis";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Contains("client.precis"));
  }
  SECTION("the keyring has no key of the user") {
    settings.user = "client.nobody";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("keyring") && Contains("ceph auth get client.nobody"));
  }
  SECTION("the keyring is absent") {
    settings.ceph_conf = cluster->conf_with("\n[client]\nkeyring = /does/not/exist.keyring\n");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("/does/not/exist.keyring"));
  }
  SECTION("the keyring has another key") {
    settings.ceph_conf =
        cluster->conf_with("\n[client.precis]\nkey = " + CephCluster::new_key() + "\n");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("ceph auth get client.precis"));
  }
  SECTION("the key is none") {
    settings.ceph_conf = cluster->conf_with("\n[client.precis]\nkey = nonsense\n");
    CHECK(failure_of(settings).code() == StatusCode::kInvalidArgument);
  }
  SECTION("the user may only read") {
    settings.user = "client.reader";
    settings.ceph_conf = conf_of_new_user(settings.user, "allow r pool=" + cluster->pool());
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("ceph auth caps client.reader"));
  }
  SECTION("the pool is absent") {
    settings.pool = "other";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kNotFound);
    CHECK_THAT(status.message(), Contains("ceph osd pool create other"));
  }
  SECTION("the pool is erasure-coded") {
    cluster->command(R"("prefix": "osd erasure-code-profile set", "name": "two",)"
                     R"("profile": ["k=2", "m=1", "crush-failure-domain=osd"])");
    cluster->command(
        R"("prefix": "osd pool create", "pool": "coded", "pg_num": 8, "pool_type": "erasure",)"
        R"("erasure_code_profile": "two")");
    settings.user = "client.all-pools";
    settings.ceph_conf = conf_of_new_user(settings.user, "allow rw");
    settings.pool = "coded";
    settings.timeout = kLong;
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK_THAT(status.message(), Contains("replicated"));
  }
  SECTION("no monitor answers") {
    settings.ceph_conf = cluster->conf_with("\n[client]\nmon_host = [v2:127.0.0.1:1]\n");
    settings.timeout = std::chrono::seconds(1);
    const auto begin = Clock::now();
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("within 1 s") && Contains("127.0.0.1:1"));
    CHECK(Clock::now() - begin < kLong);
  }
}

TEST_CASE("no write is lost when an OSD is killed, and writes go on", "[integration][ceph]") {
  TierWriters writers(connect(cluster->settings("killed-osd")));
  writers.await_more();
  for (const std::size_t osd : {0u, 1u}) {
    cluster->kill_osd(osd);
    writers.await_more();
    cluster->await_osds(2);
    writers.await_more();
    cluster->start_osd(osd);
    cluster->await_osds(3);
    writers.await_more();
  }
  writers.check();
}

TEST_CASE("writes to an OSD that hangs fail in time, and can be made again",
          "[integration][ceph]") {
  auto settings = cluster->settings("hung-osd");
  settings.timeout = std::chrono::seconds(1);
  TierWriters writers(connect(settings));
  writers.await_more();
  cluster->signal_osd(0, SIGSTOP);
  cluster->await_osds(2);  // the others miss it after more than that second
  writers.await_more();
  cluster->signal_osd(0, SIGCONT);
  cluster->await_osds(3);
  writers.await_more();
  CHECK(writers.unavailable() > 0);
  writers.check();
}

TEST_CASE("a full Ceph refuses to store more, and lets what is stored be read and removed",
          "[integration][ceph]") {
  const auto tier = connect(cluster->settings("full"));
  const std::vector<std::byte> value(100'000);
  REQUIRE(tier->write_object("before", value).ok());
  set_full_ratios("0.0001", "0.0002", "0.0003");
  const auto until = Clock::now() + kLong;
  Status status;
  for (int number = 0; status.ok(); ++number) {  // until the OSDs have told the monitor
    REQUIRE(Clock::now() < until);
    status = tier->write_object("more-" + std::to_string(number), value);
  }
  CHECK(status.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(status.message(), Contains("object.more-"));
  auto into = value;
  CHECK(tier->read_object("before", into).ok());
  const auto newcomer = connect(cluster->settings("full-and-new"));
  CHECK(newcomer->change_marks({{{0, {}, {}}}}).code() == StatusCode::kOutOfSpace);
  CHECK(tier->remove_object("before", value.size()).ok());
  CHECK(tier->read_object("before", into).code() == StatusCode::kNotFound);
  set_full_ratios("0.85", "0.90", "0.95");
  while (tier->write_object("after", value).code() == StatusCode::kOutOfSpace) {
    REQUIRE(Clock::now() < until + kLong);
  }
  CHECK(tier->read_object("after", into).ok());
}

int main(int argc, char** argv) {
  if (!CephCluster::available()) {
    std::printf(
        "skipped: it needs root and the Debian packages ceph-mon, ceph-osd and librados2\n");
    return 77;
  }
  cluster = std::make_unique<CephCluster>();
  const int code = run_test_cases(argc, argv);
  cluster.reset();
  return code;
}
