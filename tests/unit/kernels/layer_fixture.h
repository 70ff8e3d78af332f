// Random layers and whole compressions for the kernel tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/cpu_stages.h"
#include "precis/joiner.h"
#include "precis/kernels.h"
#include "precis/profile.h"
#include "precis/record.h"

namespace precis::kernels::test {

using Rng = std::mt19937_64;

struct LayerShape {
  std::uint32_t layer = 0, num_layers = 1;
  std::uint32_t num_kv_heads = 2, group = 1;
  std::uint32_t num_tokens = 40, head_dim = 8;
  std::uint32_t begin = 0;
  std::uint32_t pushed = 0;        // observation queries per head
  bool lse = false;                // their exact log-sum-exp over the visible keys of this layer
  bool behind = false;             // queries stand after the segment (kvzip); any number of them
  bool query_stats = false;        // a mean and a covariance per query head
  std::uint32_t o_proj_width = 0;  // 0: none; else W_O and its Gram matrices
  std::uint32_t rope_pairs = 0;    // 0: the keys are taken as unrotated
  bool probe = false;              // coefficients for kvprobe
  bool external = false;           // scores with ties, infinities and NaN
  std::uint32_t stride_gap = 0;    // unused elements between heads
  Dtype dtype = Dtype::kF32;
  std::string text() const;
};

// A layer that owns the memory that its input views. Movable: the views point into heap memory.
struct OwnedLayer {
  std::vector<std::byte> keys, values, queries, o_proj;
  std::vector<float> lse, scores, query_mean, query_covariance, gram, probe;
  std::vector<double> rope_frequencies;
  LayerInput input;
};
OwnedLayer make_layer(const LayerShape& shape, Rng& rng);

// A profile of budgets that fits the shape's layers and heads: rising curves, or weights of which
// some are zero.
Profile random_profile(const LayerShape& shape, Rng& rng);
// A probe that fits the shape.
Profile random_probe(const LayerShape& shape, Rng& rng);

// Stage score on the CPU with the best instruction set, or with `isa`.
LayerScores score_layer(const Recipe& recipe, const LayerInput& input);
LayerScores score_layer(const Recipe& recipe, const LayerInput& input, Isa isa,
                        unsigned threads = 2);
// The instruction sets that this machine runs.
std::vector<Isa> isas();

// Element [head, token, channel] by the definition of its dtype, not by the kernels' conversion.
double value_at(const HeadsView& view, std::uint32_t head, std::uint32_t token,
                std::uint32_t channel);
void set_element(OwnedLayer& owner, const HeadsView& view, std::uint32_t head, std::uint32_t token,
                 std::uint32_t channel, float value);

// Bytes at a 64-byte boundary.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size = 0, std::byte fill = std::byte{0xcd});
  MutableBytes mutable_bytes() { return {reinterpret_cast<std::byte*>(lines_.data()), size_}; }
  Bytes bytes() const { return {reinterpret_cast<const std::byte*>(lines_.data()), size_}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  std::size_t size_;
};

// Narrows each layer to the tokens that `windows` ([num_layers], 0 for all) leave of it.
void narrow(const Recipe& recipe, const std::vector<std::uint32_t>& windows,
            std::vector<OwnedLayer>& layers);
// A window for each layer of the shape, or none for all of them.
std::vector<std::uint32_t> random_windows(const LayerShape& shape, Rng& rng);
// The sizes of a segment of these layers, some of which may be narrow.
SegmentDims dims_of(const std::vector<OwnedLayer>& layers);
// The entries of all layers.
std::uint64_t entries_max(const std::vector<OwnedLayer>& layers);

// One layer through score, select, allocate, encode.
struct Compressed {
  LayerScores scores;
  RetentionOrders orders;
  std::vector<std::uint32_t> counts;              // [num_kv_heads]
  std::vector<std::vector<std::uint32_t>> seats;  // [num_kv_heads][counts]; empty for cuts
  AlignedBytes records;
  // The tokens that a head keeps, in its order.
  std::vector<std::uint32_t> kept(std::uint32_t head) const;
};

// Compresses all layers of a segment; if the recipe is a cut, seats are placed too.
std::vector<Compressed> compress_segment(const CpuStages& cpu, const Recipe& recipe,
                                         const std::vector<OwnedLayer>& layers,
                                         std::uint64_t entries, const Profile* profile = nullptr);

// Compresses one layer by itself, for recipes whose layers take turns. The seats of cuts are not
// placed.
Compressed compress(const CpuStages& cpu, const Recipe& recipe, const LayerInput& input,
                    std::uint64_t entries);

// The records of a layer, each opened and verified; throws if one does not verify.
std::vector<RecordView> open_all(const AlignedBytes& records);

// A seed from the system, or PRECIS_TEST_SEED; print it with INFO.
std::uint64_t test_seed();
std::uint32_t pick(Rng& rng, std::uint32_t low, std::uint32_t high);
inline Dtype pick_dtype(Rng& rng) {
  return kDtypes[pick(rng, 0, std::uint32_t{kDtypes.size()} - 1)];
}

// An input that has only sizes, for stages that read nothing else.
LayerInput sizes_only(std::uint32_t num_kv_heads, std::uint32_t num_tokens, std::uint32_t layer = 0,
                      std::uint32_t num_layers = 1);

std::string bytes_text(Bytes bytes);  // for comparisons that print

}  // namespace precis::kernels::test
