// Threads that write to a shared tier while a test disturbs its storage.
#pragma once

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/shared/shared_tier_contract.h"

namespace precis::testing {

// Threads that write to the shared tier all the time.
class TierWriters {
 public:
  explicit TierWriters(std::unique_ptr<SharedTier> tier) : tier_(std::move(tier)) {
    for (std::uint32_t shard = 0; shard < kShardsWritten; ++shard) {
      threads_.emplace_back([this, shard] { ends_[shard] = write_rows(shard); });
    }
    threads_.emplace_back([this] { ends_[kObjects] = write_objects(); });
  }
  ~TierWriters() { stop(); }
  // Waits until each of them has written more.
  void await_more() const {
    const std::vector<int> before(written_.begin(), written_.end());
    const auto until = std::chrono::steady_clock::now() + kLong;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      while (written_[i] < before[i] + 3) {
        REQUIRE(std::chrono::steady_clock::now() < until);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }
  // The number of calls that have failed with kUnavailable.
  int unavailable() const { return unavailable_; }
  // Ends the threads, and checks that the storage has all that they wrote, and nothing else.
  void check() {
    stop();
    for (const Status& end : ends_) CHECK(end == Status());
    for (std::uint32_t shard = 0; shard < kShardsWritten; ++shard) {
      RowsFound expected;
      for (int row = 0; row < written_[shard]; ++row) {
        expected[{shard, std::to_string(row)}] = bytes_of(std::to_string(row));
      }
      CHECK((rows_of(*tier_, {shard}) == expected));
    }
    for (int number = 0; number < written_[kObjects]; ++number) {
      auto into = object(0);
      CHECK(tier_->read_object("o-" + std::to_string(number), into).ok());
      CHECK((into == object(number)));
    }
  }

 private:
  // Guards against a hang: nothing here takes so long.
  static constexpr std::chrono::seconds kLong{60};
  static constexpr std::uint32_t kShardsWritten = 6;  // each is in a group of its own
  static constexpr std::size_t kObjects = kShardsWritten;

  static std::vector<std::byte> object(int number) {
    return std::vector<std::byte>(100'000, static_cast<std::byte>(number));
  }
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Makes the same call again if it may have been applied, as callers do.
  Status repeat(const std::function<Status()>& call) {
    for (;;) {
      Status status = call();
      if (status.code() != StatusCode::kUnavailable) return status;
      ++unavailable_;
    }
  }
  // Writes the keys "0", "1" and so on, each with its own text as the value.
  Status write_rows(std::uint32_t shard) {
    ShardMark mark{1, 0, false, "node", "instance"};
    PRECIS_TRY(repeat([&] { return tier_->change_marks({{{shard, {}, mark}}}); }));
    for (; !stop_; ++mark.sequence, ++written_[shard]) {
      SharedBatch batch;
      const std::string text = std::to_string(mark.sequence);
      batch.puts.emplace_back(text, bytes_of(text));
      PRECIS_TRY(repeat([&] { return tier_->write(shard, mark, batch); }));
    }
    return {};
  }
  Status write_objects() {
    for (int number = 0; !stop_; ++number, ++written_[kObjects]) {
      const std::string name = "o-" + std::to_string(number);
      PRECIS_TRY(repeat([&] { return tier_->write_object(name, object(number)); }));
    }
    return {};
  }

  const std::unique_ptr<SharedTier> tier_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> unavailable_ = 0;
  std::array<std::atomic<int>, kShardsWritten + 1> written_{};
  std::array<Status, kShardsWritten + 1> ends_;
  std::vector<std::thread> threads_;
};

}  // namespace precis::testing
