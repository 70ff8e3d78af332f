#include "cachesvc/server/wrong_proofs.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "precis/limits.h"

namespace precis {
namespace {

class FakeClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 0; }
  std::uint64_t monotonic_ns() const override { return now_ms_ * 1'000'000; }
  void advance_ms(std::uint64_t ms) { now_ms_ += ms; }

 private:
  std::uint64_t now_ms_ = 1;
};

struct Fixture {
  FakeClock clock;
  WrongProofs proofs{clock};

  bool may(const std::string& address = "10.0.0.1", const std::string& tenant = "red") {
    return proofs.may_try(address, tenant).ok();
  }
  void wrong(const std::string& address = "10.0.0.1", const std::string& tenant = "red") {
    proofs.note(address, tenant, false);
  }
  void use_up_free() {
    for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) {
      CHECK(may());
      wrong();
    }
  }
};

}  // namespace

TEST_CASE("the first wrong proofs are free, then there is a wait that says how long it is",
          "[unit][server]") {
  Fixture f;
  f.use_up_free();
  const Status wait = f.proofs.may_try("10.0.0.1", "red");
  CHECK(wait.code() == StatusCode::kRejected);
  CHECK(wait.retry_after_ms() == limits::kWrongProofWaitMs);
  f.clock.advance_ms(limits::kWrongProofWaitMs - 1);
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == 1);
  f.clock.advance_ms(1);
  CHECK(f.may());
}

TEST_CASE("each further wrong proof doubles the wait, up to its maximum", "[unit][server]") {
  Fixture f;
  f.use_up_free();
  std::uint64_t wait_ms = limits::kWrongProofWaitMs;
  for (int i = 0; i < 40; ++i) {
    CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == wait_ms);
    f.clock.advance_ms(wait_ms);
    CHECK(f.may());
    f.wrong();
    wait_ms = std::min<std::uint64_t>(wait_ms * 2, limits::kWrongProofWaitMsMax);
  }
  CHECK(wait_ms == limits::kWrongProofWaitMsMax);
}

TEST_CASE("a right proof ends the wait and the count", "[unit][server]") {
  Fixture f;
  f.use_up_free();
  f.clock.advance_ms(limits::kWrongProofWaitMs);
  f.proofs.note("10.0.0.1", "red", true);
  f.use_up_free();
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == limits::kWrongProofWaitMs);
}

TEST_CASE("addresses and tenants do not slow each other down", "[unit][server]") {
  Fixture f;
  f.use_up_free();
  f.wrong("10.0.0.1", "blue");
  CHECK_FALSE(f.may());
  CHECK(f.may("10.0.0.2", "red"));
  CHECK(f.may("10.0.0.1", "blue"));
  f.proofs.note("10.0.0.2", "red", true);
  f.proofs.note("10.0.0.1", "blue", true);
  CHECK_FALSE(f.may());
}

TEST_CASE("what is remembered of guesses is bounded, and who guessed least is forgotten first",
          "[unit][server]") {
  Fixture f;
  f.use_up_free();
  for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) f.wrong("10.0.0.9");
  for (std::size_t i = 0; i < limits::kWrongProofRowsMax - 2; ++i) {
    f.wrong("other", std::to_string(i));
  }
  // Tenants that are made up push out no wait of a real one.
  for (int i = 0; i < 10; ++i) f.wrong("other", "one more " + std::to_string(i));
  CHECK_FALSE(f.may());
  CHECK_FALSE(f.may("10.0.0.9"));
}

}  // namespace precis
