// A profile holds budgets per head that were learnt offline for one model, and names the recipes
// that may use it. Two kinds of table have one form: LU-KV's prune curves and HeadKV's weights
// (policies/budgets.md, "Profiles").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "precis/recipe.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

struct Profile {
  using Kind = TableKind;
  std::string name;
  Kind kind = Kind::kCurves;
  Digest model;        // fingerprint
  std::string scorer;  // canonical recipe of the scores used; heads and layers uniform
  std::uint32_t sinks = 0, recent = 0;  // protected tokens when it was built
  std::uint32_t num_layers = 0, num_kv_heads = 0;
  std::uint32_t num_tokens = 0;  // of the fitting contexts
  std::string text_digest;       // SHA-256 of the fitting text, hexadecimal
  // kCurves: [99, num_layers, num_kv_heads]: the share of a head's entries that is pruned when 1%,
  // 2%, ... 99% of all entries are pruned. kWeights: [1, num_layers, num_kv_heads].
  std::vector<float> table;

  static constexpr std::uint32_t kCurveRows = 99;
  float at(std::uint32_t row, std::uint32_t layer, std::uint32_t head) const {
    return table[(std::size_t{row} * num_layers + layer) * num_kv_heads + head];
  }
  bool operator==(const Profile&) const = default;
};

// Parses JSON that `precis profile build` writes. kVersionMismatch for an unknown version.
// kInvalidArgument names the field: an unknown kind, a table of the wrong size, a value that is not
// finite, out of range ([0, 1] for curves, [0, 1e30] for weights) or lower than the row before in a
// curve.
Result<Profile> parse_profile(std::string_view json);
std::string profile_json(const Profile& profile);
// SHA-256 of profile_json() with an empty name; a recipe's identity contains this digest.
Digest profile_digest(const Profile& profile);

// The `scorer` of a profile built over the recipe's scores: the canonical recipe with uniform
// allocators, topk and no min_entries; sinks and recent stay.
std::string profile_scorer(const Recipe& recipe);

// OK if `recipe` may use the profile on that model; kInvalidArgument names the difference (D10,
// section 3.6).
Status check_profile(const Profile& profile, const Recipe& recipe, const Digest& model);

}  // namespace precis
