// A profile holds what was learnt offline for each head of one model, and names the recipes that
// may use it. All kinds of table have one form: LU-KV's prune curves and HeadKV's weights are
// budgets (policies/budgets.md, "Profiles"), a probe is a scorer (policies/scores.md, "kvprobe").
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
  std::uint32_t sinks = 0, recent = 0;  // of the recipe that it was built with
  std::uint32_t num_layers = 0, num_kv_heads = 0;
  std::uint32_t num_tokens = 0;  // of the fitting contexts
  std::string text_digest;       // SHA-256 of the fitting text, hexadecimal
  // kCurves: [99, num_layers, num_kv_heads]: the share of a head's entries that is pruned when 1%,
  // 2%, ... 99% of all entries are pruned. kWeights: [1, num_layers, num_kv_heads]. kProbe:
  // [ProbeRows::count(), num_layers, num_kv_heads].
  std::vector<float> table;
  // The losses of answers with this profile in texts that it was not fitted on, by tokens and keep,
  // rising. Empty if they were not measured.
  struct Loss {
    std::uint32_t tokens;    // of the contexts
    std::uint32_t keep_ppm;  // share of the entries
    float mean, error;       // of the negative log-likelihood above the full cache's
    bool operator==(const Loss&) const = default;
  };
  std::vector<Loss> losses;
  std::string losses_recipe;  // measured_recipe() of the recipe that they were measured with

  static constexpr std::uint32_t kCurveRows = 99;
  std::uint32_t rows() const {
    return static_cast<std::uint32_t>(table.size() / (std::size_t{num_layers} * num_kv_heads));
  }
  float at(std::uint32_t row, std::uint32_t layer, std::uint32_t head) const {
    return table[(std::size_t{row} * num_layers + layer) * num_kv_heads + head];
  }
  bool operator==(const Profile&) const = default;
};

// The rows of a probe's table, for heads of `head_dim` channels.
struct ProbeRows {
  std::uint32_t head_dim;
  // Each of these begins head_dim rows, one per channel: the direction that keys are compared with,
  // and the coefficients of the key's and the value's elements.
  constexpr std::uint32_t anchor() const { return 0; }
  constexpr std::uint32_t key() const { return head_dim; }
  constexpr std::uint32_t value() const { return 2 * head_dim; }
  // One row each: the coefficients of log ||k||, log ||v||, 1 - cos(k, anchor), its log and the log
  // of the distance to the segment's end, and the constant.
  constexpr std::uint32_t log_key() const { return 3 * head_dim; }
  constexpr std::uint32_t log_value() const { return 3 * head_dim + 1; }
  constexpr std::uint32_t difference() const { return 3 * head_dim + 2; }
  constexpr std::uint32_t log_difference() const { return 3 * head_dim + 3; }
  constexpr std::uint32_t distance() const { return 3 * head_dim + 4; }
  constexpr std::uint32_t constant() const { return 3 * head_dim + 5; }
  constexpr std::uint32_t count() const { return 3 * head_dim + 6; }
};
// One layer of a probe's table, [num_kv_heads, ProbeRows::count()].
std::vector<float> probe_of_layer(const Profile& profile, std::uint32_t layer);

// "curves", "weights" or "probe".
std::string_view table_kind_name(TableKind kind);

// Parses JSON that `precis profile build` writes. kVersionMismatch for an unknown version.
// kInvalidArgument names the field: an unknown kind, a table of the wrong size, a value that is not
// finite, out of range ([0, 1] for curves, [0, 1e30] for weights, [-1e6, 1e6] for probes) or lower
// than the row before in a curve, losses without order or recipe.
Result<Profile> parse_profile(std::string_view json);
std::string profile_json(const Profile& profile);
// SHA-256 of profile_json() with an empty name and without losses, which change no selection; a
// recipe's identity contains this digest.
Digest profile_digest(const Profile& profile);

// The `scorer` of a profile built over the recipe's scores: the canonical recipe with uniform
// allocators, topk, no min_entries and raw rows; protected tokens stay. A probe's scores depend on
// no parameter, so all recipes of kvprobe have one `scorer`.
std::string profile_scorer(const Recipe& recipe);

// OK if `recipe` may use the profile on that model; kInvalidArgument names the difference (D10,
// section 3.6).
Status check_profile(const Profile& profile, const Recipe& recipe, const Digest& model);
// OK if the table has a row for each layer, KV head and, in a probe, channel of the model; else
// kInvalidArgument.
Status check_profile_shape(const Profile& profile, const ModelSpec& model);

}  // namespace precis
