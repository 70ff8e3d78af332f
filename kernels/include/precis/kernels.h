// The stages of compression, in the order of the put path. Pure computation: no I/O, no logging.
//
//   check -> score -> select -> allocate        (per layer)
//                                -> join        (per segment, as layers come)
//                                   -> encode   (per layer)
//
// A policy is a joining order (docs/design/policies.md). `select` orders the entries within each
// head. `allocate` decides in which order a layer's heads take the layer's seats; it needs the k-th
// largest ranked score of each head, so it runs after select. The Joiner decides which layer takes
// the segment's next seat, and where the budget cuts.
//
// Given the same scores, everything after `score` is equal bit for bit on every backend (D15).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "precis/recipe.h"
#include "precis/record_format.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis::kernels {

// The output projection W_O of one layer (Transformers' o_proj.weight, transposed), by query head.
struct OutputProjection {
  const std::byte* data = nullptr;  // [num_q_heads, head_dim, width] of dtype, contiguous
  std::uint32_t width = 0;          // the model's hidden size
  Dtype dtype = Dtype::kF32;
  std::span<const float> gram;  // [num_q_heads, head_dim, head_dim], W W^T, from gram_matrices()
  bool empty() const { return data == nullptr && gram.empty(); }
};

// One pushed layer of one segment. All views are of host memory, borrowed for the call. If a client
// writes to its rows of K and V during the call, the stored rows are useless; nothing else happens.
struct LayerInput {
  std::uint32_t layer = 0, num_layers = 1;
  std::uint32_t num_q_heads = 0;  // a multiple of keys.num_heads
  std::uint32_t begin = 0;        // absolute position of the segment's first token
  std::uint64_t entries = 0;      // the segment's budget T; read only if the recipe is a cut (D17)
  HeadsView keys, values;         // [num_kv_heads, n, head_dim], one dtype; keys carry their RoPE
  // Observation queries, post-RoPE: [num_q_heads, m, head_dim], for the last m tokens of the
  // segment in order (query i stands at token n - m + i), or, for kKvzip, any queries that stand
  // after the segment. Empty if none were pushed.
  HeadsView queries;
  std::span<const float> lse;     // [num_q_heads, m] natural log-sum-exp of q.k/sqrt(d), or empty
  std::span<const float> scores;  // [num_kv_heads, n] for Scorer::kExternal, or empty
  // Statistics of future queries, post-RoPE, for kExpectedAttention, or empty.
  std::span<const float> query_mean;        // [num_q_heads, head_dim]
  std::span<const float> query_covariance;  // [num_q_heads, head_dim, head_dim]
  OutputProjection o_proj;                  // empty if the model has none registered
  std::span<const float> probe;  // [num_kv_heads, ProbeRows::count()] (profile.h), for kKvprobe
  // RoPE (rope.h) rotated elements c and c + size() of a key, by this many radians per position. If
  // empty, kKvdiff and kKvprobe use the keys with their RoPE.
  std::span<const double> rope_frequencies;

  std::uint32_t num_kv_heads() const { return keys.num_heads; }
  std::uint32_t num_tokens() const { return keys.num_tokens; }
  std::uint32_t group() const { return num_q_heads / keys.num_heads; }
};

// The scores of a layer's entries.
struct LayerScores {
  // [num_kv_heads, n], higher = keep; stored with the entries. Protected tokens without a score of
  // their own (the window of attention scorers; sinks and tail of partitions) have +inf (D16).
  std::vector<float> scores;
  // [num_kv_heads, n], the scores of the selector's other stage; undefined at protected tokens.
  // Empty if the selector has one stage. kTwoStage: (s + epsilon) x output norm; kThreshold: mean
  // attention.
  std::vector<float> second;
  // The layer's weight under LayerAllocator kPreference and kEntropy, not negative; else 0.
  float weight = 0;
};

// The retention order of every head of a layer. order[h] lists token indices (from the segment's
// first), each once; the first `protected_count` of them are protected. An order may be shorter
// than the head if no turn of the layer can need its further tokens.
struct RetentionOrders {
  std::uint32_t protected_count = 0;              // the same in every head
  std::vector<std::vector<std::uint32_t>> order;  // [num_kv_heads][at most n]
};

// The order in which a layer's heads take the layer's slots; slot i is the layer's (i + 1)-th seat.
// All protected entries come before all ranked entries, and heads take turns for them.
struct LayerTurns {
  std::uint32_t num_tokens = 0, num_kv_heads = 0;
  std::uint32_t protected_count = 0;
  // The head of each slot, as many slots as requested; empty if the heads of all layers compete.
  std::vector<std::uint16_t> heads;
  // If the heads of all layers compete by score (kGlobalFlat): score_rank() of each head's ranked
  // entries, best first, [num_kv_heads][at most the requested number].
  std::vector<std::vector<std::uint32_t>> ranks;
  float weight = 0;  // LayerScores::weight
};

// Takes one layer at a time through the stages: each stage once, in this order. The results of a
// stage stay where the backend computes (on a device, so do the rows), in memory that is reused
// from layer to layer. Not thread-safe; several compressors of one backend may run at the same
// time.
class LayerCompressor {
 public:
  virtual ~LayerCompressor() = default;

  // Begins a layer. `recipe` and the memory that `input` views must stay valid until encode(), or a
  // stage that fails, has returned. Checks shapes, dtypes and finiteness of all pushed inputs, and
  // that the recipe's inputs were pushed. A later stage may report values of K and V that are not
  // finite, at the latest encode(). kInvalidArgument: "layer 3 keys: NaN at head 1, token 5".
  virtual Status check(const Recipe& recipe, const LayerInput& input) = 0;

  virtual Status score() = 0;

  // Orders each head: protected entries first (sinks ascending, then recent tokens from the last
  // backwards), then the others in the selector's order; in each ranking NaN comes last and ties go
  // to the lower position (D1). Orders only as many entries as the layer's first `slots` turns
  // (Joiner::slots_wanted()) can need.
  virtual Status select(std::uint64_t slots) = 0;

  // Computes the layer's first `slots` turns, as many as select() was asked for.
  virtual Status allocate(LayerTurns& turns) = 0;

  // The layer's scores in host memory. May be called between score() and encode().
  virtual Result<const LayerScores*> scores() = 0;

  // Gathers the rows of the first counts[h] entries of each head's order and writes the layer's
  // records, head after head, into `out`. `out` has encoded_bytes() bytes and is aligned to 4
  // bytes. With `seats`, [num_kv_heads][counts[h]], the records get these seats and are sealed with
  // their checksums. If `seats` is empty, place_seats() or place_cut_seats() must follow, then
  // seal(); until then the records do not verify.
  virtual Status encode(std::span<const std::uint32_t> counts,
                        const std::vector<std::vector<std::uint32_t>>& seats,
                        const SegmentId& segment, MutableBytes out) = 0;
};

// The interface of the CPU and CUDA implementations. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu (avx512)", "cuda:0 (NVIDIA H200)"
  // How many layers must be compressed at the same time to keep the backend busy.
  virtual unsigned compressors() const = 0;
  // The compressor must not outlive the backend.
  virtual Result<std::unique_ptr<LayerCompressor>> compressor() = 0;

  // Writes the checksums of all records of these layers, whose seats have been placed. kCorruption
  // if a layer does not hold records.
  virtual Status seal(std::span<const MutableBytes> layers) = 0;

  // Announces that layers are read from this memory and records written to it, so that a device can
  // access it at full speed. The memory must outlive the backend. If the device refuses, copies are
  // slower and nothing else changes.
  virtual Status expect_memory(MutableBytes memory) = 0;
  // Whether layers in memory that was not announced are slower to copy.
  virtual bool expects_memory() const = 0;
};

// Bytes of a layer's records at these counts.
std::size_t encoded_bytes(std::span<const std::uint32_t> counts, const EntryForm& form);

// The most bytes that a layer's records with `entries` entries in total can take.
std::size_t encoded_bytes_max(std::uint64_t entries, std::uint32_t num_kv_heads,
                              const EntryForm& form);

// Drops the entries after the first counts[h] of each of a layer's records, in place; the records
// are compacted towards the front. Returns their new size, encoded_bytes() of `counts`. Only for
// records whose seats are not placed yet. kCorruption if `layer` does not hold records, or a record
// has fewer entries.
Result<std::size_t> trim_records(MutableBytes layer, std::span<const std::uint32_t> counts);

// Writes the seats of one layer's records, [num_kv_heads][count].
Status place_seats(MutableBytes layer, const std::vector<std::vector<std::uint32_t>>& seats);

// Writes the seats of a segment whose recipe is a cut: (score desc, layer asc, head asc, position
// asc) over all records (D17). Seats still ascend within each record: a protected entry joins no
// later than any entry behind it. layers[l] are layer l's records as encode() wrote them;
// kCorruption if they are not records.
Status place_cut_seats(std::span<const MutableBytes> layers);

// W W^T of every query head, [num_q_heads, head_dim, head_dim] f32: the input of
// ValueNorm::kL2Gram, prepared once per model.
std::vector<float> gram_matrices(const OutputProjection& o_proj, std::uint32_t num_q_heads,
                                 std::uint32_t head_dim);

// threads 0: every core.
std::unique_ptr<Backend> make_cpu_backend(unsigned threads = 0);
// kUnsupported if the build has no CUDA or the machine has no device `ordinal`. threads: as above,
// for work without a CUDA implementation. on_retreat: called from any thread with the reason why
// the CPU compresses layers instead: the first time that the device has no room for a layer
// (kOutOfSpace), and when the device fails, after which the CPU compresses all layers. Without
// on_retreat, layers fail if the device fails.
Result<std::unique_ptr<Backend>> make_cuda_backend(
    int ordinal, unsigned threads = 0, std::function<void(const Status&)> on_retreat = {});

}  // namespace precis::kernels
