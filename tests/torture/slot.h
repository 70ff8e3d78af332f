// The torture's record of each stored path: its current state, and the states that a SIGKILL may
// leave.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/random_kv.h"

namespace precis::torture {

inline constexpr std::uint32_t kParentTokens = 240, kChildTokens = 130;
inline constexpr std::uint32_t kKeepPpm = 600'000;  // budget of puts
inline constexpr char kTortureRecipe[] = "ada_keydiff";

// Number of entries stored of a path's two segments; 0 for a segment that is not stored.
struct Stored {
  std::uint64_t parent = 0, child = 0;
  auto operator<=>(const Stored&) const = default;
  std::string to_string() const;
};

// A requested change of one path, answered or not.
struct Change {
  enum class Kind { kPut, kTrim, kRemove };
  Kind kind = Kind::kPut;
  bool child = false;  // otherwise the parent; removing the parent removes both
  Budget budget;
  std::uint64_t entries = 0;  // of the segment, after the change
  Durability durability = Durability::kWal;
  Stored applied_to(const Stored& before) const;
  std::string to_string() const;
};

// A path of two segments, a parent and its child. One thread changes the path; other threads may
// read it, and call only path(), kv(), entries(), full() and expected(), whose results do not
// change.
class Slot {
 public:
  Slot(std::uint32_t seed, const ModelSpec& model);
  Slot(Slot&&) = default;  // no copies: Kv has views of its own memory

  const std::vector<TokenId>& path(bool child) const { return child ? path_ : parent_path_; }
  const testing::Kv& kv(bool child) const { return child ? child_kv_ : parent_kv_; }
  std::uint64_t entries(bool child, const Budget& budget) const;  // a budget in entries
  std::uint64_t full(bool child) const { return entries(child, Budget::ratio_ppm(kKeepPpm)); }

  // The result of reading `stored`: rows as pushed, cut at the seats of `stored`.
  testing::PrefixCopy expected(const Stored& stored) const;
  // Records the entries of both whole segments; false if a row differs from the pushed row.
  bool learn(testing::PrefixCopy whole);

  const Stored& now() const { return now_; }
  void answered(const Change& change);  // if the answer was OK
  void unanswered(const Change& change);
  // Sets the state after a SIGKILL; false if `stored` is not a possible state.
  bool found(const Stored& stored);
  std::string possible_text() const;

  // Bytes of the records of `stored`, rounded up to the store's blocks for each layer.
  std::uint64_t payload_bytes(const Stored& stored) const;

 private:
  std::set<Stored> after(const Change& change) const;

  ModelSpec model_;
  std::vector<TokenId> parent_path_, path_;
  testing::Kv parent_kv_, child_kv_;
  testing::PrefixCopy whole_;
  Stored now_;
  std::set<Stored> possible_{Stored{}};  // states that a crash may leave
};

}  // namespace precis::torture
