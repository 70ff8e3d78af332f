#include "tests/unit/kernels/layer_fixture.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/unit/kernels/reference.h"

namespace precis::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void store(std::byte* at, Dtype dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == Dtype::kF32) {
    std::memcpy(at, &bits, 4);
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
  bytes.assign(stride * heads, std::byte{0xff});  // NaN where nobody should look
  HeadsView view{bytes.data(), heads, tokens, shape.head_dim, shape.dtype, stride};
  std::normal_distribution<float> normal;
  for (std::uint32_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < std::size_t{tokens} * shape.head_dim; ++i) {
      store(bytes.data() + h * stride + i * size, shape.dtype, normal(rng));
    }
  }
  return view;
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
         std::to_string(lse) + " gap " + std::to_string(stride_gap) + " " +
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
    owner.lse = reference_lse(in);
    in.lse = owner.lse;
  }
  if (shape.external) {
    for (std::size_t i = 0; i < std::size_t{shape.num_kv_heads} * shape.num_tokens; ++i) {
      owner.scores.push_back(score_with_ties(rng));
    }
    in.scores = owner.scores;
  }
  return owner;
}

double value_at(const HeadsView& view, std::uint32_t head, std::uint32_t token,
                std::uint32_t channel) {
  const std::byte* at = view.row(head, token) + channel * dtype_size_bytes(view.dtype);
  if (view.dtype == Dtype::kF32) {
    float x;
    std::memcpy(&x, at, 4);
    return x;
  }
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  const int mantissa_bits = view.dtype == Dtype::kF16 ? 10 : 7;
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

void set_element(OwnedLayer& owner, const HeadsView& view, std::uint32_t head, std::uint32_t token,
                 std::uint32_t channel, float value) {
  for (auto* bytes : {&owner.keys, &owner.values, &owner.queries}) {
    if (bytes->data() != view.data) continue;
    const std::byte* at = view.row(head, token) + channel * dtype_size_bytes(view.dtype);
    store(bytes->data() + (at - view.data), view.dtype, value);
  }
}

AlignedBytes::AlignedBytes(std::size_t size, std::byte fill_byte)
    : lines_((size + 63) / 64), size_(size) {
  for (Line& line : lines_) std::fill(std::begin(line.bytes), std::end(line.bytes), fill_byte);
}

Compressed compress(Backend& backend, const Recipe& recipe, const LayerInput& input,
                    std::uint64_t entries) {
  const auto must = [](const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.to_string());
  };
  Compressed c;
  c.scores.resize(std::size_t{input.num_kv_heads()} * input.num_tokens());
  must(backend.check(recipe, input));
  must(backend.score(recipe, input, c.scores));
  must(backend.select(recipe, input, c.scores, c.orders));
  must(backend.allocate(recipe, input, c.scores, c.orders, entries, c.plan));
  c.records = AlignedBytes(encoded_bytes(c.plan.counts(), input.keys.head_dim, input.keys.dtype));
  must(backend.encode(input, c.scores, c.plan, SegmentId{{1, 2, 3}}, c.records.mutable_bytes()));
  return c;
}

std::vector<Compressed> compress_segment(Backend& backend, const Recipe& recipe,
                                         const std::vector<OwnedLayer>& layers,
                                         std::uint64_t entries) {
  std::vector<Compressed> out;
  std::vector<MutableBytes> records;
  for (const OwnedLayer& layer : layers) {
    out.push_back(compress(backend, recipe, layer.input, entries));
    records.push_back(out.back().records.mutable_bytes());
  }
  if (recipe.is_cut()) {
    if (const Status s = place_cut_seats(records); !s.ok()) throw std::runtime_error(s.to_string());
  }
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
