// The cases that every S3 must pass.
#include "tests/integration/s3_cases.h"

#include <array>
#include <catch2/catch.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/shared/s3_tier.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace precis::testing {

std::unique_ptr<SharedTier> connect_to(const S3Settings& settings) {
  auto tier = connect_s3(settings, {.tidier = std::make_unique<ThreadExecutor>("tidy", 2)});
  INFO(tier.status().to_string());
  REQUIRE(tier.ok());
  return std::move(*tier);
}

Status failure_of(const S3Settings& settings) {
  const auto tier = connect_s3(settings, {});
  REQUIRE_FALSE(tier.ok());
  CHECK_THAT(tier.status().message(), !Catch::Contains("secret"));
  return tier.status();
}

TEST_CASE("the shared tier in S3 keeps the contract", "[integration][s3]") {
  int number = 0;
  for (const auto& contract : shared_tier_contract()) {
    ++number;
    DYNAMIC_SECTION(contract.name) {
      contract.run(*connect_to(s3_settings("contract-" + std::to_string(number))));
    }
  }
}

TEST_CASE("one of many requests creates an object in S3", "[integration][s3]") {
  constexpr int kThreads = 4, kObjects = 8;
  const auto store = make_s3_store(s3_settings("any")).value();
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
      const auto tier = connect_s3(s3_settings("several"), {}).value();
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
  const auto tier = connect_to(s3_settings("several"));
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    INFO(ends[node].to_string());
    CHECK(ends[node].ok());
    CHECK(rows_of(*tier, {node * kShardGroups}).size() == kWrites);
  }
}

TEST_CASE("clusters with names of their own share a bucket", "[integration][s3]") {
  const auto a = connect_to(s3_settings("..")), b = connect_to(s3_settings("name-b"));
  const ShardMark mark{1, 0, false, "node", "instance"};
  REQUIRE(a->change_marks(std::array{SharedTier::Change{7, {}, mark}}).ok());
  REQUIRE(a->write_object("..", bytes_of("a")).ok());
  CHECK_FALSE(b->marks({{7}}).value().front());
  std::vector<std::byte> into(1);
  CHECK(a->read_object("..", into).ok());
  CHECK(b->read_object("..", into).code() == StatusCode::kNotFound);
}

TEST_CASE("a large object comes back from S3", "[integration][s3]") {
  const auto tier = connect_to(s3_settings("large"));
  std::vector<std::byte> value(20u << 20);
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<std::byte>(i / 1000);
  REQUIRE(tier->write_object("large", value).ok());
  std::vector<std::byte> into(value.size());
  REQUIRE(tier->read_object("large", into).ok());
  CHECK((into == value));
  into.pop_back();
  CHECK(tier->read_object("large", into).code() == StatusCode::kCorruption);
}

}  // namespace precis::testing
