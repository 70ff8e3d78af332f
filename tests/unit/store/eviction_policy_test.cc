// The contract of every eviction policy, and the advantages of S3-FIFO.
#include "cachesvc/store/eviction_policy.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/unit/store/lru_policy.h"

using namespace precis;
using precis::testing::make_lru_policy;

namespace {

HotKey key(std::uint32_t n) {
  HotKey key;
  key.segment.bytes[0] = static_cast<std::uint8_t>(n);
  key.segment.bytes[1] = static_cast<std::uint8_t>(n >> 8);
  key.segment.bytes[2] = static_cast<std::uint8_t>(n >> 16);
  return key;
}

std::unique_ptr<EvictionPolicy> each_policy() {
  return GENERATE(&make_s3_fifo_policy, &make_lru_policy)();
}

bool anything(const HotKey&) { return true; }

// A tier of `capacity` keys of one size. ask() returns whether the key was present.
class Tier {
 public:
  Tier(EvictionPolicy& policy, std::size_t capacity) : policy_(policy), capacity_(capacity) {}
  bool ask(const HotKey& key) {
    if (kept_.contains(key)) {
      policy_.used(key);
      return true;
    }
    if (kept_.size() == capacity_) {
      const auto gone = policy_.victim(anything);
      REQUIRE(gone);
      policy_.removed(*gone);
      REQUIRE(kept_.erase(*gone) == 1);
    }
    policy_.added(key, 100);
    kept_.insert(key);
    return false;
  }

 private:
  EvictionPolicy& policy_;
  const std::size_t capacity_;
  std::set<HotKey> kept_;
};

}  // namespace

TEST_CASE("a policy names only keys that are there and may go, until none is left",
          "[unit][eviction]") {
  const auto policy = each_policy();
  std::mt19937 random(3);
  std::set<HotKey> there;
  for (int i = 0; i < 20'000; ++i) {
    const HotKey k = key(random() % 300);
    switch (random() % 4) {
      case 0:
        if (there.insert(k).second) policy->added(k, 1 + random() % 1000);
        break;
      case 1:
        if (there.contains(k)) policy->used(k);
        break;
      case 2:
        if (there.erase(k) == 1) policy->removed(k);
        break;
      default: {
        const auto held = static_cast<std::uint8_t>(random());
        const auto may_go = [&](const HotKey& of) { return of.segment.bytes[0] != held; };
        const auto gone = policy->victim(may_go);
        const auto any = std::ranges::any_of(there, may_go);
        REQUIRE(gone.has_value() == any);
        if (!gone) break;
        REQUIRE(may_go(*gone));
        REQUIRE(there.erase(*gone) == 1);
        policy->removed(*gone);
      }
    }
  }
  while (!there.empty()) {
    const auto gone = policy->victim(anything);
    REQUIRE(gone);
    REQUIRE(there.erase(*gone) == 1);
    policy->removed(*gone);
  }
  CHECK_FALSE(policy->victim(anything));
}

TEST_CASE("what is used stays through a scan under S3-FIFO, and does not under LRU",
          "[unit][eviction]") {
  const auto left = [](EvictionPolicy& policy) {
    Tier tier(policy, 100);
    for (int round = 0; round < 20; ++round) {
      for (std::uint32_t n = 0; n < 40; ++n) tier.ask(key(n));
      for (std::uint32_t n = 0; n < 30; ++n) tier.ask(key(1000 + 30 * round + n));
    }
    for (std::uint32_t n = 0; n < 500; ++n) tier.ask(key(100'000 + n));  // the scan
    int had = 0;
    for (std::uint32_t n = 0; n < 40; ++n) had += tier.ask(key(n)) ? 1 : 0;
    return had;
  };
  CHECK(left(*make_s3_fifo_policy()) >= 30);
  CHECK(left(*make_lru_policy()) == 0);
}

TEST_CASE("S3-FIFO follows a load whose keys come back late", "[unit][eviction]") {
  // Cycles over somewhat more keys than fit: LRU never has the next one.
  const auto hits = [](EvictionPolicy& policy) {
    Tier tier(policy, 100);
    int had = 0;
    for (std::uint32_t i = 0; i < 20'000; ++i) had += tier.ask(key(i % 130)) ? 1 : 0;
    return had;
  };
  CHECK(hits(*make_lru_policy()) == 0);
  CHECK(hits(*make_s3_fifo_policy()) > 1000);
}

TEST_CASE("what may not go costs each victim a few steps", "[unit][eviction]") {
  constexpr std::uint32_t kLarge = 500, kTiny = 20'000;
  const auto policy = make_s3_fifo_policy();
  std::size_t asked = 0;
  const auto is_tiny = [&](const HotKey& of) {
    ++asked;
    return of.segment.bytes[3] == 1;
  };
  const auto tiny = [](std::uint32_t n) {
    HotKey made = key(n);
    made.segment.bytes[3] = 1;
    return made;
  };
  for (std::uint32_t n = 0; n < kLarge; ++n) {
    policy->added(key(n), 1'000'000);
    for (int uses = 0; uses < 3; ++uses) policy->used(key(n));
  }
  for (std::uint32_t n = 0; n < kTiny; ++n) policy->added(tiny(n), 1);
  for (std::uint32_t n = 0; n < kTiny; ++n) {
    const auto gone = policy->victim(is_tiny);
    REQUIRE(gone);
    policy->removed(*gone);
  }
  CHECK(asked < std::size_t{10} * kTiny);
}
