#include "cachesvc/server/wrong_proofs.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr auto kRight = WrongProofs::Proof::kRight;
constexpr auto kWrong = WrongProofs::Proof::kWrong;
constexpr auto kUnknown = WrongProofs::Proof::kOfUnknownTenant;

class FakeClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 0; }
  std::uint64_t monotonic_ns() const override {
    ++reads;
    return now_ms_ * 1'000'000;
  }
  mutable std::uint64_t reads = 0;
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
    proofs.note(address, tenant, kWrong);
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
  CHECK(wait.code() == StatusCode::kPermissionDenied);
  CHECK(wait.retry_after_ms() == limits::kWrongProofWaitMs);
  f.clock.advance_ms(limits::kWrongProofWaitMs - 1);
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == 1);
  f.clock.advance_ms(1);
  CHECK(f.may());
}

TEST_CASE("a tenant's waits end where its token is changed, and no other's", "[unit][server]") {
  Fixture f;
  f.use_up_free();
  for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) f.wrong("10.0.0.2");
  for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) f.wrong("10.0.0.1", "blue");
  f.proofs.erase("red");
  CHECK(f.may());
  CHECK(f.may("10.0.0.2"));
  CHECK_FALSE(f.may("10.0.0.1", "blue"));
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
  f.proofs.note("10.0.0.1", "red", kRight);
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
  f.proofs.note("10.0.0.2", "red", kRight);
  f.proofs.note("10.0.0.1", "blue", kRight);
  CHECK_FALSE(f.may());
}

TEST_CASE("made-up tenants, however many and often, let nobody guess faster at a real one",
          "[unit][server]") {
  Fixture f;
  const int before = GENERATE(0, 1, 4);
  const auto made_up = [&](const std::string& tenant) {
    if (f.proofs.may_try("10.0.0.1", tenant).ok()) f.proofs.note("10.0.0.1", tenant, kUnknown);
  };
  for (std::size_t i = 0; i < limits::kWrongProofRowsMax; ++i) {
    for (int k = 0; k < before; ++k) made_up("made up " + std::to_string(i));
  }
  int looked_at = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (f.may()) {
      ++looked_at;
      f.wrong();
    }
    made_up("other " + std::to_string(i % 2));
    if (i % 16 == 0) made_up("new " + std::to_string(i));
  }
  CHECK(looked_at >= 1);
  CHECK(looked_at <= static_cast<int>(limits::kWrongProofsFree));
}

TEST_CASE(
    "of too many tenants that exist the one guessed at least goes, and who comes has its count",
    "[unit][server]") {
  Fixture f;
  f.use_up_free();
  for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) f.wrong("10.0.0.9");
  for (std::size_t i = 0; i < limits::kWrongProofRowsMax - 2; ++i) {
    for (int k = 0; k < 2; ++k) f.wrong("other", std::to_string(i));
  }
  // The table is full of rows with two wrong proofs. Each new row replaces one of them and inherits
  // its count.
  int looked_at = 0;
  for (int i = 0; i < 1000; ++i) {
    for (const char* tenant : {"one more", "and one"}) {
      if (!f.may("other", tenant)) continue;
      ++looked_at;
      f.wrong("other", tenant);
    }
  }
  CHECK(looked_at <= 2 * static_cast<int>(limits::kWrongProofsFree));
  CHECK_FALSE(f.may());
  CHECK_FALSE(f.may("10.0.0.9"));
}

TEST_CASE(
    "where too many are remembered, each more costs one look at the clock and not one of each",
    "[unit][server]") {
  Fixture f;
  for (std::size_t i = 1; i < limits::kWrongProofRowsMax; ++i) f.wrong("old", std::to_string(i));
  f.clock.advance_ms(limits::kWrongProofExpiryMs / 2);
  f.use_up_free();
  f.clock.reads = 0;
  for (int i = 0; i < 100; ++i) {
    f.proofs.note("10.0.0.2", "made up " + std::to_string(i), kUnknown);
  }
  CHECK(f.clock.reads == 100);
  CHECK_FALSE(f.may());
  // Expired rows are replaced first, whatever their counts, and new rows do not inherit these
  // counts.
  f.clock.advance_ms(limits::kWrongProofExpiryMs / 2);
  for (std::size_t i = 0; i < limits::kWrongProofRowsMax - 200; ++i) {
    f.proofs.note("10.0.0.3", "made up " + std::to_string(i), kUnknown);
    CHECK(f.may("10.0.0.3", "made up " + std::to_string(i)));
  }
  f.wrong();
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == 2 * limits::kWrongProofWaitMs);
}

TEST_CASE("wrong proofs are forgotten once none came for long", "[unit][server]") {
  Fixture f;
  f.use_up_free();
  f.clock.advance_ms(limits::kWrongProofExpiryMs - 1);
  CHECK(f.may());
  f.wrong();  // adds to the earlier wrong proofs
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == 2 * limits::kWrongProofWaitMs);
  f.clock.advance_ms(limits::kWrongProofExpiryMs);
  f.use_up_free();  // starts again from zero
  CHECK(f.proofs.may_try("10.0.0.1", "red").retry_after_ms() == limits::kWrongProofWaitMs);
}

TEST_CASE("a tenant that does not exist is slowed down as one that does", "[unit][server]") {
  Fixture f;
  for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) {
    CHECK(f.may("10.0.0.1", "nobody"));
    f.proofs.note("10.0.0.1", "nobody", kUnknown);
  }
  CHECK_FALSE(f.may("10.0.0.1", "nobody"));
  CHECK(f.may("10.0.0.1", "somebody else"));
}

}  // namespace precis
