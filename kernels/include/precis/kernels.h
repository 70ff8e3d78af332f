// The stages of compression, in the order of the put path. Pure computation: no I/O, no logging.
//
//   check -> score -> select -> allocate -> encode          (per layer)
//   place_cut_seats                             (per segment, where seats need all layers)
//
// A policy is a joining order (policies.md): `select` orders the entries within each head,
// `allocate` says which head takes the next seat and cuts at the layer's budget. allocate reads the
// k-th largest ranked score of each head, so it follows select, unlike in a pipeline of budgets.
//
// Given the same scores, everything after `score` is equal bit for bit on every backend (D15).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "precis/recipe.h"
#include "precis/record_format.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis::kernels {

// One layer of one segment, as pushed. All views: host memory, borrowed for the call.
struct LayerInput {
  std::uint32_t layer = 0, num_layers = 1;
  std::uint32_t num_q_heads = 0;  // a multiple of keys.num_heads
  std::uint32_t begin = 0;        // absolute position of the segment's first token
  HeadsView keys, values;         // [num_kv_heads, n, head_dim], one dtype; keys carry their RoPE
  // Observation queries, post-RoPE: [num_q_heads, m, head_dim], the last m tokens of the segment in
  // order (query i stands at token n - m + i); empty where none were pushed.
  HeadsView queries;
  std::span<const float> lse;     // [num_q_heads, m] natural log-sum-exp of q.k/sqrt(d), or empty
  std::span<const float> scores;  // [num_kv_heads, n] for Scorer::kExternal, or empty

  std::uint32_t num_kv_heads() const { return keys.num_heads; }
  std::uint32_t num_tokens() const { return keys.num_tokens; }
};

// The retention order of every head of a layer: order[h] lists token indices (from the segment's
// first), the first `protected_count` of them protected. Every token stands in it exactly once.
struct RetentionOrders {
  std::uint32_t protected_count = 0;              // the same in every head
  std::vector<std::vector<std::uint32_t>> order;  // [num_kv_heads][n]
};

// What a layer keeps. kept[h] is a prefix of order[h]; seats ascend along it.
// seats[h] holds global seats (1-based) of the segment, or is empty where the recipe is a cut: then
// place_cut_seats fills the records at commit.
struct LayerPlan {
  std::vector<std::vector<std::uint32_t>> kept;   // [num_kv_heads][count] token indices
  std::vector<std::vector<std::uint32_t>> seats;  // [num_kv_heads][count]
  std::vector<std::uint32_t> counts() const;
};

// One backend does every stage; the only run-time choice between CPU and CUDA.
// Thread-safe: calls share nothing but the backend's thread pool.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu (avx512)", "cuda:0 (NVIDIA H200)"

  // Shapes, dtypes and finiteness of everything pushed, and that the recipe's needs were pushed.
  // kInvalidArgument: "layer 3 keys: NaN at head 1, token 5".
  virtual Status check(const Recipe& recipe, const LayerInput& input) = 0;

  // scores: [num_kv_heads, n] f32, higher = keep. Protected tokens without a score of their own
  // (the window of kWindowAttention; sinks and tail of kLagkv) get +inf (D16).
  virtual Status score(const Recipe& recipe, const LayerInput& input, std::span<float> scores) = 0;

  // Protected first (sinks ascending, then recent from the last backwards), then the selector's
  // order; D1 ranks: NaN last, ties to the lower position.
  virtual Status select(const Recipe& recipe, const LayerInput& input,
                        std::span<const float> scores, RetentionOrders& orders) = 0;

  // Seats, cut at the layer's share of `entries` (T of the segment, budget_entries()).
  virtual Status allocate(const Recipe& recipe, const LayerInput& input,
                          std::span<const float> scores, const RetentionOrders& orders,
                          std::uint64_t entries, LayerPlan& plan) = 0;

  // Gathers the kept rows and writes the layer's records, head after head, into `out` of
  // encoded_bytes(), at a multiple of 4 bytes. Sealed at once where plan has seats; else
  // place_cut_seats() must follow, and until then the records do not verify.
  virtual Status encode(const LayerInput& input, std::span<const float> scores,
                        const LayerPlan& plan, const SegmentId& segment, MutableBytes out) = 0;
};

// Bytes of a layer's records at these counts.
std::size_t encoded_bytes(std::span<const std::uint32_t> counts, std::uint32_t head_dim,
                          Dtype dtype);

// At most so many bytes take a layer's records of `entries` entries, however heads share them.
std::size_t encoded_bytes_max(std::uint64_t entries, std::uint32_t num_kv_heads,
                              std::uint32_t head_dim, Dtype dtype);

// Fills the seats of a segment whose recipe is a cut: (score desc, layer asc, head asc, position
// asc) over all records (D17), then seals them. Seats ascend within each record all the same: a
// protected entry joins no later than any entry behind it. layers[l] are layer l's records as
// encode() wrote them; kCorruption if they are none.
Status place_cut_seats(std::span<const MutableBytes> layers);

// threads 0: every core.
std::unique_ptr<Backend> make_cpu_backend(unsigned threads = 0);
// kUnsupported where the build has no CUDA or the machine no device `ordinal`.
Result<std::unique_ptr<Backend>> make_cuda_backend(int ordinal);

}  // namespace precis::kernels
