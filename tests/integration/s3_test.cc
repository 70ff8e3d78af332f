// The shared tier in a real S3: SeaweedFS. Another one can be tested with PRECIS_TEST_S3 (its URL),
// PRECIS_TEST_S3_KEYS (a file) and the argument ~[seaweedfs].
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/shared/s3_tier.h"
#include "tests/catch_runner.h"
#include "tests/integration/s3_server.h"
#include "tests/integration/tier_writers.h"
#include "tests/unit/shared/shared_tier_contract.h"
#include "tests/unit/transport/certificate.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

std::unique_ptr<S3Server> server;  // of all tests; main() makes it, unless another S3 is tested
const char* const other_url = std::getenv("PRECIS_TEST_S3");
const char* const other_keys = std::getenv("PRECIS_TEST_S3_KEYS");

S3Settings settings_of(const std::string& space) {
  if (server) return server->settings(space);
  S3Settings settings;
  settings.url = other_url;
  settings.keys_file = other_keys;
  settings.space = space;
  return settings;
}

std::unique_ptr<SharedTier> connect(const S3Settings& settings) {
  auto tier = connect_s3(settings, std::make_unique<ThreadExecutor>("tidy", 2));
  INFO(tier.status().to_string());
  REQUIRE(tier.ok());
  return std::move(*tier);
}

Status failure_of(const S3Settings& settings) {
  const auto tier = connect_s3(settings, nullptr);
  REQUIRE_FALSE(tier.ok());
  CHECK_THAT(tier.status().message(), !Contains("secret"));
  return tier.status();
}

}  // namespace

TEST_CASE("the shared tier in S3 keeps the contract", "[integration][s3]") {
  int number = 0;
  for (const auto& contract : shared_tier_contract()) {
    ++number;
    DYNAMIC_SECTION(contract.name) {
      contract.run(*connect(settings_of("contract-" + std::to_string(number))));
    }
  }
}

TEST_CASE("one of many requests creates an object in S3", "[integration][s3]") {
  constexpr int kThreads = 4, kObjects = 8;
  const auto store = make_s3_store(settings_of("any")).value();
  for (int n = 0; n < kObjects; ++n) {
    const std::string name = "created/" + std::to_string(n);
    std::array<Result<bool>, kThreads> created = {false, false, false, false};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(
          [&, t] { created[t] = store->create(name, bytes_of(std::to_string(t))); });
    }
    for (std::thread& thread : threads) thread.join();
    const auto content = store->get(name, 10).value();
    int winners = 0;
    for (int t = 0; t < kThreads; ++t) {
      INFO(created[t].status().to_string());
      REQUIRE(created[t].ok());
      if (!*created[t]) continue;
      ++winners;
      CHECK(content == bytes_of(std::to_string(t)));
    }
    CHECK(winners == 1);
  }
}

TEST_CASE("several nodes write to the shards of one group in S3", "[integration][s3]") {
  constexpr std::uint32_t kNodes = 3;
  constexpr int kWrites = 12;
  std::vector<std::thread> threads;
  std::array<Status, kNodes> ends;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    threads.emplace_back([&, node] {
      const auto tier = connect_s3(settings_of("several"), nullptr).value();
      const std::uint32_t shard = node * kShardGroups;
      ShardMark mark{1, 0, false, "node", "instance"};
      ends[node] = tier->change_marks(std::array{SharedTier::Change{shard, {}, mark}});
      for (; ends[node].ok() && mark.sequence < kWrites; ++mark.sequence) {
        SharedBatch batch;
        batch.puts.emplace_back(std::to_string(mark.sequence), bytes_of("row"));
        ends[node] = tier->write(shard, mark, batch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto tier = connect(settings_of("several"));
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    INFO(ends[node].to_string());
    CHECK(ends[node].ok());
    CHECK(rows_of(*tier, {node * kShardGroups}).size() == kWrites);
  }
}

TEST_CASE("clusters with names of their own share a bucket", "[integration][s3]") {
  const auto a = connect(settings_of("..")), b = connect(settings_of("name-b"));
  const ShardMark mark{1, 0, false, "node", "instance"};
  REQUIRE(a->change_marks(std::array{SharedTier::Change{7, {}, mark}}).ok());
  REQUIRE(a->write_object("..", bytes_of("a")).ok());
  CHECK_FALSE(b->marks({{7}}).value().front());
  std::vector<std::byte> into(1);
  CHECK(a->read_object("..", into).ok());
  CHECK(b->read_object("..", into).code() == StatusCode::kNotFound);
}

TEST_CASE("a large object comes back from S3", "[integration][s3]") {
  const auto tier = connect(settings_of("large"));
  std::vector<std::byte> value(20u << 20);
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<std::byte>(i / 1000);
  REQUIRE(tier->write_object("large", value).ok());
  std::vector<std::byte> into(value.size());
  REQUIRE(tier->read_object("large", into).ok());
  CHECK((into == value));
  into.pop_back();
  CHECK(tier->read_object("large", into).code() == StatusCode::kCorruption);
}

TEST_CASE("what prevents a connection to S3 is told", "[integration][s3][seaweedfs]") {
  auto settings = server->settings("refused");
  SECTION("the secret is wrong") {
    settings.keys_file = server->keys_file("precis", "other-secret");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("cluster_s3_keys"));
  }
  SECTION("nobody has the key") {
    settings.keys_file = server->keys_file("nobody", "other-secret");
    CHECK(failure_of(settings).code() == StatusCode::kPermissionDenied);
  }
  SECTION("the user may only read") {
    settings.keys_file = server->keys_of_reader();
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(status.message(), Contains("permit the user"));
  }
  SECTION("the bucket is absent") {
    settings.url.replace(settings.url.rfind('/'), std::string::npos, "/other");
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("there is no bucket 'other'"));
  }
  SECTION("the URL is none") {
    settings.url = "127.0.0.1/bucket";
    CHECK(failure_of(settings).code() == StatusCode::kInvalidArgument);
  }
  SECTION("the file with the keys is absent") {
    settings.keys_file = "/does/not/exist";
    CHECK_THAT(failure_of(settings).message(), Contains("/does/not/exist"));
  }
  SECTION("nobody answers") {
    settings.url = "http://127.0.0.1:1/bucket";
    const Status status = failure_of(settings);
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Contains("127.0.0.1:1"));
  }
}

TEST_CASE("S3 is reached over TLS, and only the right one", "[integration][s3][seaweedfs]") {
  const TestDir dir;
  const S3Server encrypted(precis::test::make_certificate(dir.path()));
  auto settings = encrypted.settings("tls");
  const auto tier = connect(settings);
  REQUIRE(tier->write_object("object", bytes_of("value")).ok());
  settings.ca = "system";
  CHECK(failure_of(settings).code() == StatusCode::kPermissionDenied);
  settings.ca = "/does/not/exist.pem";
  CHECK_THAT(failure_of(settings).message(), Contains("cluster_s3_ca"));
}

TEST_CASE("no write is lost when SeaweedFS is killed and started again",
          "[integration][s3][seaweedfs]") {
  TierWriters writers(connect(server->settings("killed")));
  writers.await_more();
  server->kill();
  server->start();
  writers.await_more();
  CHECK(writers.unavailable() > 0);
  writers.check();
}

TEST_CASE("writes to an S3 that hangs fail in time, and can be made again",
          "[integration][s3][seaweedfs]") {
  auto settings = server->settings("hangs");
  settings.timeout = std::chrono::milliseconds(1500);
  TierWriters writers(connect(settings));
  writers.await_more();
  server->signal(SIGSTOP);
  while (writers.unavailable() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server->signal(SIGCONT);
  writers.await_more();
  writers.check();
}

int main(int argc, char** argv) {
  const bool is_other = other_url != nullptr && other_keys != nullptr;
  if (!is_other && !S3Server::available()) {
    std::printf("skipped: ./dev test installs SeaweedFS\n");
    return 77;
  }
  if (!is_other) server = std::make_unique<S3Server>();
  const int code = run_test_cases(argc, argv);
  server.reset();
  return code;
}
