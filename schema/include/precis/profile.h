// A profile: what was learnt offline about one model, and which recipes may use it. Two kinds of
// table share a form: LU-KV's prune curves (policies.md 2.16) and HeadKV's weights (2.12).
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
  std::string scorer;  // canonical recipe of the scores it was built over, heads and layers uniform
  std::uint32_t sinks = 0, recent = 0;  // protected while it was built
  std::uint32_t num_layers = 0, num_kv_heads = 0;
  std::uint32_t num_tokens = 0;  // of the fitting contexts
  std::string text_digest;       // SHA-256 of the fitting text, hexadecimal
  // kCurves: [99, num_layers, num_kv_heads], the share of a head's entries that is pruned when 1%,
  // 2%, ... 99% of all are. kWeights: [1, num_layers, num_kv_heads].
  std::vector<float> table;

  static constexpr std::uint32_t kCurveRows = 99;
  float at(std::uint32_t row, std::uint32_t layer, std::uint32_t head) const {
    return table[(std::size_t{row} * num_layers + layer) * num_kv_heads + head];
  }
  bool operator==(const Profile&) const = default;
};

// JSON, as `precis profile build` writes it. kInvalidArgument names the field: unknown version or
// kind, a table of the wrong size, values that are not finite, outside [0, 1] or falling along a
// curve.
Result<Profile> parse_profile(std::string_view json);
std::string profile_json(const Profile& profile);
// SHA-256 of profile_json() without the name: what a recipe's identity holds.
Digest profile_digest(const Profile& profile);

// What a profile over the recipe's scores names as its scorer: the canonical recipe with uniform
// allocators, topk and no floor; sinks and recent included.
std::string profile_scorer(const Recipe& recipe);

// Whether `recipe` may use it on that model: kInvalidArgument with what differs (D10, section 3.6).
Status check_profile(const Profile& profile, const Recipe& recipe, const Digest& model);

}  // namespace precis
