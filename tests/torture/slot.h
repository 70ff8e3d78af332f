// What the torture knows of what it stores: of each path what is there, and what may be there after
// a SIGKILL.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/random_kv.h"

namespace precis::torture {

inline constexpr std::uint32_t kParentTokens = 240, kChildTokens = 130;
inline constexpr std::uint32_t kKeepPpm = 600'000;  // of puts
inline constexpr char kTortureRecipe[] = "ada_keydiff";

// Entries stored of a path's two segments; 0 where one is not there.
struct Stored {
  std::uint64_t parent = 0, child = 0;
  auto operator<=>(const Stored&) const = default;
  std::string to_string() const;
};

// A change of one path, asked for and answered or not.
struct Change {
  enum class Kind { kPut, kTrim, kRemove };
  Kind kind = Kind::kPut;
  bool child = false;  // else the parent; removing that one removes both
  Budget budget;
  std::uint64_t entries = 0;  // afterwards
  Durability durability = Durability::kWal;
  Stored applied_to(const Stored& before) const;
  std::string to_string() const;
};

// A path of two segments, one standing on the other. One thread changes it; others may read it,
// whose own state is their client's.
class Slot {
 public:
  Slot(std::uint32_t seed, const ModelSpec& model);
  Slot(Slot&&) = default;  // not copied: its KV is seen through views of itself

  const std::vector<TokenId>& path(bool child) const { return child ? path_ : parent_path_; }
  const testing::Kv& kv(bool child) const { return child ? child_kv_ : parent_kv_; }
  std::uint64_t entries(bool child, const Budget& budget) const;  // a budget in entries
  std::uint64_t full(bool child) const { return entries(child, Budget::ratio_ppm(kKeepPpm)); }

  // What a reader of `stored` gets: every row as pushed, cut at its seats.
  testing::PrefixCopy expected(const Stored& stored) const;
  // Takes down what both segments hold when whole; false if a row is not as it was pushed.
  bool learn(testing::PrefixCopy whole);

  const Stored& now() const { return now_; }
  void answered(const Change& change);  // with OK
  void unanswered(const Change& change);
  // After a SIGKILL `found` is there. False if that may not be.
  bool found(const Stored& stored);
  std::string possible_text() const;

  // Bytes of the records of `stored`, each layer's rounded up to the store's blocks.
  std::uint64_t payload_bytes(const Stored& stored) const;

 private:
  std::set<Stored> after(const Change& change) const;

  ModelSpec model_;
  std::vector<TokenId> parent_path_, path_;
  testing::Kv parent_kv_, child_kv_;
  testing::PrefixCopy whole_;
  Stored now_;
  std::set<Stored> possible_{Stored{}};  // what a crash may leave
};

}  // namespace precis::torture
