#include "tests/unit/kernels/layer_fixture.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kernels/score/score.h"
#include "precis/joiner.h"
#include "precis/visible_layer.h"
#include "tests/unit/kernels/reference.h"

namespace precis::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double octet_by_definition(std::uint8_t octet) {
  const int exponent = octet >> 3 & 15, mantissa = octet & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -6 - 3) : std::ldexp(mantissa + 8, exponent - 7 - 3);
  return octet & 0x80 ? -magnitude : magnitude;
}

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

// The f8_e4m3 whose value is the nearest; infinities become NaN.
std::uint8_t nearest_octet(float value) {
  std::uint8_t best = 0x7f;
  for (int octet = 0; octet < 256 && std::isfinite(value); ++octet) {
    const auto bits = static_cast<std::uint8_t>(octet);
    const double distance = std::fabs(octet_by_definition(bits) - value);
    if (best == 0x7f || distance < std::fabs(octet_by_definition(best) - value)) best = bits;
  }
  return best;
}

void store(std::byte* at, Dtype dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == Dtype::kF32) {
    std::memcpy(at, &bits, 4);
    return;
  }
  if (dtype == Dtype::kF8E4M3) {
    *at = std::byte{nearest_octet(value)};
    return;
  }
  std::uint16_t half = static_cast<std::uint16_t>(bits >> 16);
  if (dtype == Dtype::kF16) {
    int exponent = 0;
    const float fraction = std::frexp(std::fabs(value), &exponent);  // [0.5, 1)
    half = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    if (std::isnan(value)) {
      half |= 0x7e00;
    } else if (std::isinf(value) || exponent > 16) {
      half |= 0x7c00;
    } else if (value != 0 && exponent > -14) {  // smaller values become zero
      half |= static_cast<std::uint16_t>((exponent + 14) << 10);
      half |= static_cast<std::uint16_t>((fraction * 2 - 1) * 1024);
    }
  }
  std::memcpy(at, &half, 2);
}

HeadsView fill(std::vector<std::byte>& bytes, std::uint32_t heads, std::uint32_t tokens,
               const LayerShape& shape, Rng& rng) {
  const std::size_t size = dtype_size_bytes(shape.dtype);
  const std::size_t stride = (std::size_t{tokens} * shape.head_dim + shape.stride_gap) * size;
  bytes.assign(stride * heads, std::byte{0xff});  // NaN in the gaps, which no code should read
  HeadsView view{bytes.data(), heads, tokens, shape.head_dim, shape.dtype, stride};
  std::normal_distribution<float> normal;
  for (std::uint32_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < std::size_t{tokens} * shape.head_dim; ++i) {
      store(bytes.data() + h * stride + i * size, shape.dtype, normal(rng));
    }
  }
  return view;
}

void push_query_stats(OwnedLayer& owner, Rng& rng) {
  LayerInput& in = owner.input;
  const std::size_t dim = in.keys.head_dim;
  std::normal_distribution<float> normal;
  for (std::size_t q = 0; q < in.num_q_heads; ++q) {
    std::vector<float> root(dim * dim);  // covariance = root * root^T
    for (float& x : root) x = normal(rng);
    for (std::size_t a = 0; a < dim; ++a) {
      owner.query_mean.push_back(normal(rng));
      for (std::size_t b = 0; b < dim; ++b) {
        float sum = 0;
        for (std::size_t c = 0; c < dim; ++c) sum += root[a * dim + c] * root[b * dim + c];
        owner.query_covariance.push_back(sum / static_cast<float>(dim));
      }
    }
  }
  in.query_mean = owner.query_mean;
  in.query_covariance = owner.query_covariance;
}

void register_o_proj(OwnedLayer& owner, const LayerShape& shape, Rng& rng) {
  LayerInput& in = owner.input;
  LayerShape rows = shape;
  rows.head_dim = shape.o_proj_width;
  rows.stride_gap = 0;
  if (shape.dtype == Dtype::kF8E4M3) rows.dtype = Dtype::kBf16;  // weights have no 8 bits
  fill(owner.o_proj, in.num_q_heads, shape.head_dim, rows, rng);
  in.o_proj = {owner.o_proj.data(), shape.o_proj_width, rows.dtype, {}};
  owner.gram = reference_gram(in);
  in.o_proj.gram = owner.gram;
}

float score_with_ties(Rng& rng) {
  static constexpr float kScores[] = {std::numeric_limits<float>::quiet_NaN(),
                                      -kInfinity,
                                      kInfinity,
                                      -0.0f,
                                      0.0f,
                                      1.0f,
                                      2.0f,
                                      -1.0f};
  if (pick(rng, 0, 1) == 0) return kScores[pick(rng, 0, 7)];
  return static_cast<float>(pick(rng, 0, 1000)) / 1000.0f;
}

}  // namespace

std::string LayerShape::text() const {
  return "layer " + std::to_string(layer) + "/" + std::to_string(num_layers) + " kv_heads " +
         std::to_string(num_kv_heads) + " group " + std::to_string(group) + " n " +
         std::to_string(num_tokens) + " d " + std::to_string(head_dim) + " begin " +
         std::to_string(begin) + " pushed " + std::to_string(pushed) + " lse " +
         std::to_string(lse) + " behind " + std::to_string(behind) + " width " +
         std::to_string(o_proj_width) + " gap " + std::to_string(stride_gap) + " " +
         std::string(dtype_name(dtype));
}

OwnedLayer make_layer(const LayerShape& shape, Rng& rng) {
  OwnedLayer owner;
  LayerInput& in = owner.input;
  in.layer = shape.layer;
  in.num_layers = shape.num_layers;
  in.num_q_heads = shape.num_kv_heads * shape.group;
  in.begin = shape.begin;
  in.keys = fill(owner.keys, shape.num_kv_heads, shape.num_tokens, shape, rng);
  in.values = fill(owner.values, shape.num_kv_heads, shape.num_tokens, shape, rng);
  if (shape.pushed > 0) in.queries = fill(owner.queries, in.num_q_heads, shape.pushed, shape, rng);
  if (shape.lse) {
    owner.lse = reference_lse(in, shape.behind);
    in.lse = owner.lse;
  }
  if (shape.query_stats) push_query_stats(owner, rng);
  if (shape.o_proj_width > 0) register_o_proj(owner, shape, rng);
  for (std::uint32_t c = 0; c < shape.rope_pairs; ++c) {
    owner.rope_frequencies.push_back(std::pow(100.0, -1.0 * c / shape.rope_pairs));
  }
  in.rope_frequencies = owner.rope_frequencies;
  if (shape.probe) {
    owner.probe = probe_of_layer(random_probe(shape, rng), shape.layer);
    in.probe = owner.probe;
  }
  if (shape.external) {
    for (std::size_t i = 0; i < std::size_t{shape.num_kv_heads} * shape.num_tokens; ++i) {
      owner.scores.push_back(score_with_ties(rng));
    }
    in.scores = owner.scores;
  }
  return owner;
}

Profile random_profile(const LayerShape& shape, Rng& rng) {
  Profile profile;
  profile.kind = pick(rng, 0, 1) ? Profile::Kind::kCurves : Profile::Kind::kWeights;
  profile.num_layers = shape.num_layers;
  profile.num_kv_heads = shape.num_kv_heads;
  const std::uint32_t heads = shape.num_layers * shape.num_kv_heads;
  const bool curves = profile.kind == Profile::Kind::kCurves;
  profile.table.resize(std::size_t{curves ? Profile::kCurveRows : 1} * heads);
  for (std::size_t i = 0; i < profile.table.size(); ++i) {
    const float before = i < heads ? 0.0f : profile.table[i - heads];
    const auto step = static_cast<float>(pick(rng, 0, 20)) / 1000.0f;
    profile.table[i] = curves ? std::min(1.0f, before + step) : static_cast<float>(pick(rng, 0, 3));
  }
  return profile;
}

Profile random_probe(const LayerShape& shape, Rng& rng) {
  Profile profile;
  profile.kind = Profile::Kind::kProbe;
  profile.num_layers = shape.num_layers;
  profile.num_kv_heads = shape.num_kv_heads;
  const ProbeRows rows{shape.head_dim};
  const std::size_t heads = std::size_t{shape.num_layers} * shape.num_kv_heads;
  // The channels' products stay small, so that scores are far from their bounds.
  const float most = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  for (std::size_t i = 0; i < rows.count() * heads; ++i) {
    const bool of_channel = i / heads < rows.log_key();
    profile.table.push_back(std::uniform_real_distribution<float>(-1, 1)(rng) *
                            (of_channel ? most : 1.0f));
  }
  return profile;
}

LayerScores score_layer(const Recipe& recipe, const LayerInput& input) {
  return score_layer(recipe, input, detect_isa());
}

LayerScores score_layer(const Recipe& recipe, const LayerInput& input, Isa isa, unsigned threads) {
  ThreadPool pool(threads);
  LayerScores scores;
  must(score_cpu({pool, isa}, recipe, input, scores));
  return scores;
}

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa <= detect_isa()) all.push_back(isa);
  }
  return all;
}

namespace {

double half_by_definition(std::uint16_t half, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

std::vector<double> all_halves(int mantissa_bits) {
  std::vector<double> values(1 << 16);
  for (std::size_t half = 0; half < values.size(); ++half) {
    values[half] = half_by_definition(static_cast<std::uint16_t>(half), mantissa_bits);
  }
  return values;
}

}  // namespace

double value_at(const HeadsView& view, std::uint32_t head, std::uint32_t token,
                std::uint32_t channel) {
  // Tables save time, because the references read the same elements many million times.
  static const std::vector<double> f16 = all_halves(10), bf16 = all_halves(7);
  const std::byte* at = view.row(head, token) + channel * dtype_size_bytes(view.dtype);
  if (view.dtype == Dtype::kF32) {
    float x;
    std::memcpy(&x, at, 4);
    return x;
  }
  if (view.dtype == Dtype::kF8E4M3) return octet_by_definition(static_cast<std::uint8_t>(*at));
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  return (view.dtype == Dtype::kF16 ? f16 : bf16)[half];
}

void set_element(OwnedLayer& owner, const HeadsView& view, std::uint32_t head, std::uint32_t token,
                 std::uint32_t channel, float value) {
  for (auto* bytes : {&owner.keys, &owner.values, &owner.queries, &owner.o_proj}) {
    if (bytes->data() != view.data) continue;
    const std::byte* at = view.row(head, token) + channel * dtype_size_bytes(view.dtype);
    store(bytes->data() + (at - view.data), view.dtype, value);
  }
}

AlignedBytes::AlignedBytes(std::size_t size, std::byte fill_byte)
    : lines_((size + 63) / 64), size_(size) {
  for (Line& line : lines_) std::fill(std::begin(line.bytes), std::end(line.bytes), fill_byte);
}

void narrow(const Recipe& recipe, const std::vector<std::uint32_t>& windows,
            std::vector<OwnedLayer>& layers) {
  for (OwnedLayer& layer : layers) {
    const std::uint32_t tokens =
        visible_tokens(windows, layer.input.layer, layer.input.num_tokens());
    const VisibleLayer visible(recipe, layer.input, tokens);
    const LayerInput& narrow = visible.input();
    layer.scores.assign(narrow.scores.begin(), narrow.scores.end());
    layer.lse.assign(narrow.lse.begin(), narrow.lse.end());
    layer.input = narrow;
    layer.input.scores = layer.scores;
    layer.input.lse = layer.lse;
  }
}

std::vector<std::uint32_t> random_windows(const LayerShape& shape, Rng& rng) {
  std::vector<std::uint32_t> windows;
  if (pick(rng, 0, 1) == 0) return windows;
  for (std::uint32_t l = 0; l < shape.num_layers; ++l) {
    windows.push_back(pick(rng, 0, 1) * pick(rng, 2, shape.num_tokens + 2));
  }
  return windows;
}

SegmentDims dims_of(const std::vector<OwnedLayer>& layers) {
  const LayerInput& first = layers.front().input;
  SegmentDims dims{first.num_layers, first.num_kv_heads()};
  for (const OwnedLayer& layer : layers) {
    dims.windows.push_back(layer.input.num_tokens());
    if (dims.windows.back() <= dims.num_tokens) continue;
    dims.num_tokens = dims.windows.back();
    dims.begin = layer.input.begin;
  }
  return dims;
}

std::uint64_t entries_max(const std::vector<OwnedLayer>& layers) {
  std::uint64_t entries = 0;
  for (const OwnedLayer& layer : layers) {
    entries += std::uint64_t{layer.input.num_kv_heads()} * layer.input.num_tokens();
  }
  return entries;
}

std::vector<std::uint32_t> Compressed::kept(std::uint32_t head) const {
  const auto& order = orders.order[head];
  return {order.begin(), order.begin() + counts[head]};
}

namespace {

std::unique_ptr<Joiner> joiner_for(const Recipe& recipe, const SegmentDims& dims,
                                   std::uint64_t entries, const Profile* profile) {
  auto joiner = Joiner::make(recipe, dims, entries, profile);
  must(joiner.status());
  return std::move(*joiner);
}

// Runs the stages up to and including the joiner.
Compressed join(const CpuStages& cpu, const Recipe& recipe, LayerInput input, std::uint64_t entries,
                Joiner& joiner) {
  input.entries = entries;
  Compressed c;
  LayerTurns turns;
  must(cpu.check(recipe, input));
  must(cpu.score(recipe, input, c.scores));
  const std::uint64_t slots = joiner.slots_wanted(input.layer);
  must(cpu.select(recipe, input, c.scores, slots, c.orders));
  must(cpu.allocate(recipe, input, c.scores, c.orders, slots, turns));
  joiner.add(input.layer, std::move(turns));
  return c;
}

void encode(const CpuStages& cpu, Encoding encoding, const LayerInput& input, const Joiner& joiner,
            Compressed& c) {
  c.counts = joiner.counts(input.layer);
  c.seats = joiner.seats(input.layer);
  c.records =
      AlignedBytes(encoded_bytes(c.counts, {input.keys.head_dim, input.keys.dtype, encoding}));
  must(cpu.encode(input, c.scores, c.orders, c.counts, c.seats, SegmentId{{1, 2, 3}},
                  c.records.mutable_bytes(), encoding));
}

}  // namespace

Compressed compress(const CpuStages& cpu, const Recipe& recipe, const LayerInput& input,
                    std::uint64_t entries) {
  const SegmentDims dims{input.num_layers, input.num_kv_heads(), input.num_tokens(), input.begin};
  const auto joiner = joiner_for(recipe, dims, entries, nullptr);
  Compressed c = join(cpu, recipe, input, entries, *joiner);
  encode(cpu, recipe.encoding, input, *joiner, c);
  return c;
}

std::vector<Compressed> compress_segment(const CpuStages& cpu, const Recipe& recipe,
                                         const std::vector<OwnedLayer>& layers,
                                         std::uint64_t entries, const Profile* profile) {
  const auto joiner = joiner_for(recipe, dims_of(layers), entries, profile);
  std::vector<Compressed> out;
  for (const OwnedLayer& layer : layers) {
    out.push_back(join(cpu, recipe, layer.input, entries, *joiner));
  }
  std::vector<MutableBytes> records;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    encode(cpu, recipe.encoding, layers[i].input, *joiner, out[i]);
    records.push_back(out[i].records.mutable_bytes());
  }
  if (!recipe.is_cut()) return out;
  must(place_cut_seats(records));
  must(cpu.seal(records));
  return out;
}

std::vector<RecordView> open_all(const AlignedBytes& records) {
  std::vector<RecordView> views;
  for (Bytes rest = records.bytes(); !rest.empty();) {
    std::size_t size = 0;
    const Result<RecordView> view = open_record(rest, &size);
    if (!view.ok()) throw std::runtime_error(view.status().to_string());
    if (const Status s = verify_record(*view); !s.ok()) throw std::runtime_error(s.to_string());
    views.push_back(*view);
    rest = rest.subspan(size);
  }
  return views;
}

std::uint64_t test_seed() {
  const char* given = std::getenv("PRECIS_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

std::uint32_t pick(Rng& rng, std::uint32_t low, std::uint32_t high) {
  return std::uniform_int_distribution<std::uint32_t>(low, high)(rng);
}

LayerInput sizes_only(std::uint32_t num_kv_heads, std::uint32_t num_tokens, std::uint32_t layer,
                      std::uint32_t num_layers) {
  LayerInput in;
  in.layer = layer;
  in.num_layers = num_layers;
  in.num_q_heads = num_kv_heads;
  in.keys.num_heads = num_kv_heads;
  in.keys.num_tokens = num_tokens;
  in.keys.head_dim = 1;
  return in;
}

std::string bytes_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace precis::kernels::test
