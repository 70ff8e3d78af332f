// Types that client and service share (ARCHITECTURE.md, Words): model, digest, segment, plan,
// budget.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"

namespace precis {

using TokenId = std::uint32_t;

// Element types of K, V and queries. Values are stored and sent to peers: append only. kF8E4M3 has
// 4 bits of exponent and 3 of mantissa, NaN but no infinity, and numbers up to 448 (OCP 8-bit
// Floating Point Specification, E4M3). Engines store KV in it, without scales of their own.
enum class Dtype : std::uint8_t { kBf16 = 1, kF16 = 2, kF32 = 3, kF8E4M3 = 4 };
inline constexpr std::array kDtypes = {Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3};
constexpr std::size_t dtype_size_bytes(Dtype d) {
  return d == Dtype::kF32 ? 4 : d == Dtype::kF8E4M3 ? 1 : 2;
}
std::string_view dtype_name(Dtype d);              // "bf16", "f16", "f32", "f8_e4m3"
Result<Dtype> parse_dtype(std::string_view name);  // kInvalidArgument lists the names
// kInvalidArgument, with the names, unless `d` is one of kDtypes: values of peers may be others.
Status check_dtype(Dtype d);

// A SHA-256 digest of 32 bytes. Ordered and hashable, so it can be a map key.
struct Digest {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const Digest&) const = default;
  std::string hex() const;
};

// A segment's identity: the first 16 bytes of SHA-256 over path and recipe (block_digest.h).
struct SegmentId {
  std::array<std::uint8_t, 16> bytes{};
  auto operator<=>(const SegmentId&) const = default;
  bool is_null() const { return *this == SegmentId{}; }
  std::string hex() const;
};
Result<Digest> parse_digest(std::string_view hex);
Result<SegmentId> parse_segment_id(std::string_view hex);

// How many of a segment's tokens a layer keeps at most: the last ones, which queries from the
// segment's last token on can see. `windows`: ModelSpec::windows.
inline std::uint32_t visible_tokens(const std::vector<std::uint32_t>& windows, std::uint32_t layer,
                                    std::uint32_t num_tokens) {
  const std::uint32_t window = windows.empty() ? 0 : windows[layer];
  return window == 0 ? num_tokens : std::min(window, num_tokens);
}

// Whether the layer sees nothing of a segment that ends at token `end`, from token `reader_end` - 1
// on.
inline bool is_out_of_sight(const std::vector<std::uint32_t>& windows, std::uint32_t layer,
                            std::uint32_t end, std::uint32_t reader_end) {
  const std::uint32_t window = windows.empty() ? 0 : windows[layer];
  return window > 0 && std::uint64_t{end} + window <= reader_end;
}

// The store's description of a model. The model's fingerprint (block_digest.h) is the SHA-256 of
// all fields.
struct ModelSpec {
  std::string name;      // e.g. "HuggingFaceTB/SmolLM2-135M-Instruct"
  std::string revision;  // free text; a model with another revision is another model
  std::uint32_t num_layers = 0;
  std::uint32_t num_q_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kBf16;  // of K, V and queries
  double rope_theta = 10000.0;
  std::string rope_scaling;  // canonical JSON of the model's RoPE scaling, empty for none
  std::uint32_t block_tokens = 64;
  // [num_layers]: a query sees at most this many tokens, itself included; 0: all. Empty if every
  // layer sees all.
  std::vector<std::uint32_t> windows;
  bool operator==(const ModelSpec&) const = default;
  // kInvalidArgument with the field's name and its limit.
  Status validate() const;
  std::size_t token_bytes() const {  // bytes of K and V of one token over all layers
    return 2 * std::size_t{num_layers} * num_kv_heads * head_dim * dtype_size_bytes(dtype);
  }
  // The most entries of a segment, over all layers and heads.
  std::uint64_t entries_max(std::uint32_t num_tokens) const;
  // Whether a layer does not see all tokens of such a segment from its end. The segment then can't
  // be read up to an earlier token: the entries in that token's window are not kept.
  bool hides_tokens(std::uint32_t num_tokens) const;
};

// Entry counts per (layer, KV head) at a cut. counts: [num_layers, num_kv_heads], row major.
struct Plan {
  std::uint32_t num_layers = 0;
  std::uint32_t num_kv_heads = 0;
  std::vector<std::uint32_t> counts;
  std::uint32_t at(std::uint32_t layer, std::uint32_t head) const {
    return counts[std::size_t{layer} * num_kv_heads + head];
  }
  std::uint64_t total() const;
  bool operator==(const Plan&) const = default;
};

// A budget as a reader or a writer requests it. `value` depends on the kind:
//   kAll        unused; all stored entries, or ratio 1.0 for a put
//   kRatio      parts per million
//   kEntries    entries per head on average
//   kBytes      bytes of the whole segment; for a prefix, of each of its segments
//   kScoreMass  of earlier builds: a share of the score mass + 2^32 * cap, both in parts per
//   million;
//               counts as the ratio `cap`
//   kByteShare  parts per million of the bytes of the full K and V
//   kLoss       millionths of a mean negative log-likelihood; budget_for_loss() makes it a ratio
struct Budget {
  enum class Kind : std::uint8_t {
    kAll = 0,
    kRatio = 1,
    kEntries = 2,
    kBytes = 3,
    kScoreMass = 4,
    kByteShare = 5,
    kLoss = 6,
  };
  Kind kind = Kind::kAll;
  std::uint64_t value = 0;
  bool operator==(const Budget&) const = default;
  static Budget all() { return {}; }
  // `keep` in (0, 1], rounded to the nearest part per million; kInvalidArgument outside that range.
  static Result<Budget> ratio(double keep);
  static Budget ratio_ppm(std::uint32_t ppm) { return {Kind::kRatio, ppm}; }
  static Budget entries(std::uint64_t per_head) { return {Kind::kEntries, per_head}; }
  static Budget bytes(std::uint64_t bytes) { return {Kind::kBytes, bytes}; }
  // The smallest budget that adds at most `most` to the mean negative log-likelihood of an answer's
  // tokens, as measured with the recipe's profile. `most` in (0, 100], kInvalidArgument outside.
  // Only for puts.
  static Result<Budget> loss(double most);
  // `share` of the bytes that K and V take as they are pushed, in (0, 1]; kInvalidArgument outside.
  static Result<Budget> byte_share(double share);
  // The same budget as a ratio if it is kScoreMass, else as it is.
  Budget without_score_mass() const {
    return kind == Kind::kScoreMass ? Budget{Kind::kRatio, value >> 32} : *this;
  }
  std::string to_string() const;  // "0.3", "128 entries", "1048576 B", "10% bytes", "all"
};

// The durability that a commit must reach before it is acknowledged (docs/promises.md, Durability).
enum class Durability : std::uint8_t { kMemory = 0, kWal = 1, kFsync = 2, kShared = 3 };
std::string_view durability_name(Durability d);
Result<Durability> parse_durability(std::string_view name);

}  // namespace precis

template <>
struct std::hash<precis::Digest> {
  std::size_t operator()(const precis::Digest& d) const noexcept {
    std::size_t h;
    std::memcpy(&h, d.bytes.data(), sizeof h);
    return h;
  }
};
template <>
struct std::hash<precis::SegmentId> {
  std::size_t operator()(const precis::SegmentId& d) const noexcept {
    std::size_t h;
    std::memcpy(&h, d.bytes.data(), sizeof h);
    return h;
  }
};
