// Coded rows, compared with a plain transform in f64 and with bounds that follow from the step.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/encode/row_decode_loop.h"
#include "kernels/encode/row_encode_loop.h"
#include "precis/row_code.h"

namespace precis::kernels::test {
namespace {

std::uint16_t bits_of(Dtype dtype, float x) {
  if (dtype == Dtype::kF8E4M3) return std::isinf(x) ? kF8Nan : nearest_finite_f8(x);
  return dtype == Dtype::kBf16 ? bf16_of_f32(x) : f16_of_f32(x);
}
float element(Dtype dtype, const std::byte* src) {
  if (dtype == Dtype::kF32) {
    float x;
    std::memcpy(&x, src, sizeof x);
    return x;
  }
  if (dtype == Dtype::kF8E4M3) return f32_of_f8(static_cast<std::uint8_t>(*src));
  std::uint16_t half;
  std::memcpy(&half, src, sizeof half);
  return dtype == Dtype::kBf16 ? f32_of_bf16(half) : f32_of_f16(half);
}

struct CodedRows {
  RowCode code = RowCode::kInt8;
  Dtype dtype = Dtype::kF32;
  std::uint32_t head_dim = 0;
  std::size_t count = 0;
  RowForm form() const { return {head_dim, dtype, code}; }
};

struct Rows {
  CodedRows shape;
  std::vector<std::byte> bytes;
  float at(std::size_t row, std::size_t i) const {
    const std::size_t size = dtype_size_bytes(shape.dtype);
    return element(shape.dtype, bytes.data() + (row * shape.head_dim + i) * size);
  }
};

Rows rows_of(const CodedRows& shape, const std::vector<float>& values) {
  Rows rows{shape, {}};
  for (const float x : values) {
    std::byte part[4];
    const std::uint16_t bits = shape.dtype == Dtype::kF32 ? 0 : bits_of(shape.dtype, x);
    std::memcpy(part, shape.dtype == Dtype::kF32 ? static_cast<const void*>(&x) : &bits,
                dtype_size_bytes(shape.dtype));
    rows.bytes.insert(rows.bytes.end(), part, part + dtype_size_bytes(shape.dtype));
  }
  return rows;
}

std::vector<std::byte> coded(const Rows& rows) {
  const RowForm form = rows.shape.form();
  std::vector<std::byte> out(rows.shape.count * form.bytes());
  encode_rows(form, rows.shape.count, rows.bytes.data(), out.data());
  return out;
}
Rows decoded(const CodedRows& shape, const std::vector<std::byte>& codes) {
  Rows rows{shape, {}};
  rows.bytes.resize(shape.count * shape.head_dim * dtype_size_bytes(shape.dtype));
  decode_rows(shape.form(), shape.count, codes.data(), rows.bytes.data());
  return rows;
}

// Rows with a few large elements each, as keys have.
Rows random_rows(std::mt19937_64& random, const CodedRows& shape) {
  std::normal_distribution<float> normal;
  std::vector<float> values(shape.count * shape.head_dim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random) * (random() % 16 == 0 ? 20.0f : 1.0f);
  }
  return rows_of(shape, values);
}

int code_at(const CodedRows& shape, const std::byte* row, std::uint32_t i) {
  const std::byte* const codes = row + kRowStepBytes;
  if (shape.code == RowCode::kInt8) return static_cast<std::int8_t>(codes[i]);
  const std::uint32_t half = shape.head_dim / 2, quarter = shape.head_dim / 4;
  const auto both = std::to_integer<unsigned>(codes[i % half]);
  const int lower = static_cast<int>(i < half ? both & 0xf : both >> 4);
  if (shape.code == RowCode::kInt4) return lower < 8 ? lower : lower - 16;
  const auto four = std::to_integer<unsigned>(codes[half + i % quarter]);
  const int bits = lower + 16 * static_cast<int>(four >> 2 * (i / quarter) & 3);
  return bits < 32 ? bits : bits - 64;
}

// The i-th sum of the transform of a block, by its definition.
double transformed(const Rows& rows, std::size_t row, std::uint32_t i) {
  const std::uint32_t block = rotated_block(rows.shape.code, rows.shape.head_dim);
  const std::uint32_t first = i / block * block;
  double sum = 0;
  for (std::uint32_t j = 0; j < block; ++j) {
    const int odd = __builtin_popcount((i - first) & j) & 1;
    sum += (odd != 0 ? -1.0 : 1.0) * rows.at(row, first + j);
  }
  return sum;
}

// At least the largest error of rounding to the dtype, relative to the element.
double unit_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return 0;
    case Dtype::kF16: return 1e-3;
    case Dtype::kBf16: return 8e-3;
    case Dtype::kF8E4M3: break;
  }
  return 0.0626;
}

}  // namespace

TEST_CASE("rows are coded as their transform, and come back within half a step",
          "[unit][kernels]") {
  std::mt19937_64 random(11);
  const Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3);
  const RowCode code = GENERATE(RowCode::kInt8, RowCode::kInt6, RowCode::kInt4);
  const std::uint32_t dim =
      GENERATE(1u, 2u, 6u, 8u, 16u, 32u, 48u, 63u, 64u, 80u, 96u, 128u, 192u, 256u, 512u);
  if (code == RowCode::kInt4 && dim % 2 != 0) return;
  if (code == RowCode::kInt6 && dim % 4 != 0) return;
  CAPTURE(dtype_name(dtype), static_cast<int>(code), dim);
  const Rows rows = random_rows(random, {code, dtype, dim, 9});
  const auto codes = coded(rows);
  const Rows back = decoded(rows.shape, codes);
  for (std::size_t r = 0; r < rows.shape.count; ++r) {
    const std::byte* const row = codes.data() + r * RowForm{dim, dtype, code}.bytes();
    const float step = element(Dtype::kBf16, row);
    const double slack = 1e-5 * step * largest_code(code);  // of sums in f32
    int largest = 0;
    for (std::uint32_t i = 0; i < dim; ++i) {
      const int found = code_at(rows.shape, row, i);
      largest = std::max(largest, std::abs(found));
      CHECK(std::abs(found * double{step} - transformed(rows, r, i)) <= step / 2 + slack);
      const double rounding =
          std::abs(rows.at(r, i)) * unit_of(dtype) + (dtype == Dtype::kF8E4M3 ? 1e-3 : 0);
      CHECK(std::abs(back.at(r, i) - rows.at(r, i)) <= step / 2 * 1.01 + slack + rounding);
    }
    // The step is the least that holds the largest sum, except that it is rounded to 8 bits.
    const auto most = static_cast<int>(largest_code(code));
    CHECK(largest >= (code == RowCode::kInt8 ? most - 1 : most));
    CHECK(largest <= most);
  }
}

TEST_CASE("rows of any size are coded by the same sums in the same order", "[unit][kernels]") {
  // A row of 3 b elements is three rows of b elements that share a step. Equal blocks have equal
  // codes, whether they are coded in registers or element by element.
  std::mt19937_64 random(12);
  const Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3);
  const RowCode code = GENERATE(RowCode::kInt8, RowCode::kInt6, RowCode::kInt4);
  const std::uint32_t dim = GENERATE(16u, 32u, 64u, 128u, 256u);
  const Rows one = random_rows(random, {code, dtype, dim, 1});
  std::vector<std::byte> three;
  for (int copy = 0; copy < 3; ++copy)
    three.insert(three.end(), one.bytes.begin(), one.bytes.end());
  const Rows wide{{code, dtype, 3 * dim, 1}, three};
  const auto codes = coded(one), wide_codes = coded(wide);
  const Rows back = decoded(one.shape, codes), wide_back = decoded(wide.shape, wide_codes);
  CHECK(std::memcmp(codes.data(), wide_codes.data(), kRowStepBytes) == 0);
  for (std::uint32_t i = 0; i < 3 * dim; ++i) {
    CHECK(code_at(wide.shape, wide_codes.data(), i) == code_at(one.shape, codes.data(), i % dim));
    CHECK(wide_back.at(0, i) == back.at(0, i % dim));
  }
}

TEST_CASE("any bytes decode to what their codes say", "[unit][kernels]") {
  std::mt19937_64 random(15);
  const RowCode code = GENERATE(RowCode::kInt8, RowCode::kInt6, RowCode::kInt4);
  const std::uint32_t dim = GENERATE(16u, 32u, 48u, 64u, 128u, 256u, 1024u);
  CAPTURE(static_cast<int>(code), dim);
  const CodedRows shape{code, Dtype::kF32, dim, 5};
  std::vector<std::byte> bytes(shape.count * shape.form().bytes());
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const float step = 0.75f;
  const std::uint16_t step_of_row = bf16_of_f32(step);
  for (std::size_t r = 0; r < shape.count; ++r) {
    std::memcpy(bytes.data() + r * shape.form().bytes(), &step_of_row, sizeof step_of_row);
  }
  const Rows rows = decoded(shape, bytes);
  const std::uint32_t block = rotated_block(code, dim);
  for (std::size_t r = 0; r < shape.count; ++r) {
    const std::byte* const row = bytes.data() + r * shape.form().bytes();
    for (std::uint32_t i = 0; i < dim; ++i) {
      int sum = 0;
      for (std::uint32_t j = 0; j < block; ++j) {
        const bool is_odd = (__builtin_popcount(i % block & j) & 1) != 0;
        sum += (is_odd ? -1 : 1) * code_at(shape, row, i / block * block + j);
      }
      CHECK(rows.at(r, i) == static_cast<float>(sum) * step / static_cast<float>(block));
    }
  }
}

namespace {

template <Dtype dtype, RowCode code, std::size_t kVectors>
void check_all_sets(std::mt19937_64& random) {
  constexpr std::size_t kCount = 60;
  const Rows rows = random_rows(random, {code, dtype, kVectors * kLanes, kCount});
  const auto codes = coded(rows);
  const Rows back = decoded(rows.shape, codes);
  auto any = codes;  // bytes that no encoder writes
  for (std::byte& byte : any) byte = static_cast<std::byte>(random());
  const Rows of_any = decoded(rows.shape, any);
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    std::vector<std::byte> these(codes.size());
    Rows those = back;
    for_isa<&encode_loop<dtype, code, kVectors>>(isa)(kCount, rows.bytes.data(), these.data());
    CHECK(these == codes);
    for_isa<&decode_loop<dtype, code, kVectors>>(isa)(kCount, codes.data(), those.bytes.data());
    CHECK(those.bytes == back.bytes);
    for_isa<&decode_loop<dtype, code, kVectors>>(isa)(kCount, any.data(), those.bytes.data());
    std::size_t unlike = 0;
    for (std::size_t i = 0; i < kCount * kVectors * kLanes; ++i) {
      const float a = those.at(0, i), b = of_any.at(0, i);
      if (!(a == b || (std::isnan(a) && std::isnan(b)))) ++unlike;
    }
    CHECK(unlike == 0);
  }
}

template <Dtype dtype, RowCode code>
void check_all_sizes(std::mt19937_64& random) {
  check_all_sets<dtype, code, 1>(random);
  check_all_sets<dtype, code, 2>(random);
  check_all_sets<dtype, code, 4>(random);
  check_all_sets<dtype, code, 8>(random);
  check_all_sets<dtype, code, 16>(random);
}

}  // namespace

TEST_CASE("codes and rows are the same with every instruction set", "[unit][kernels]") {
  std::mt19937_64 random(14);
  check_all_sizes<Dtype::kF32, RowCode::kInt8>(random);
  check_all_sizes<Dtype::kBf16, RowCode::kInt8>(random);
  check_all_sizes<Dtype::kF16, RowCode::kInt8>(random);
  check_all_sizes<Dtype::kF8E4M3, RowCode::kInt8>(random);
  check_all_sizes<Dtype::kF32, RowCode::kInt6>(random);
  check_all_sizes<Dtype::kBf16, RowCode::kInt6>(random);
  check_all_sizes<Dtype::kF16, RowCode::kInt6>(random);
  check_all_sizes<Dtype::kF8E4M3, RowCode::kInt6>(random);
  check_all_sizes<Dtype::kF32, RowCode::kInt4>(random);
  check_all_sizes<Dtype::kBf16, RowCode::kInt4>(random);
  check_all_sizes<Dtype::kF16, RowCode::kInt4>(random);
  check_all_sizes<Dtype::kF8E4M3, RowCode::kInt4>(random);
}

TEST_CASE("elements that are not finite make their row NaN, and large ones stay finite",
          "[unit][kernels]") {
  const RowCode code = GENERATE(RowCode::kInt8, RowCode::kInt6, RowCode::kInt4);
  const Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3);
  const std::uint32_t dim = GENERATE(8u, 16u, 64u);
  CAPTURE(dtype_name(dtype), static_cast<int>(code), dim);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (std::uint32_t at = 0; at < dim; ++at) {
      std::vector<float> values(dim, 1.0f);
      values[at] = bad;
      const Rows rows = rows_of({code, dtype, dim, 1}, values);
      const Rows back = decoded(rows.shape, coded(rows));
      for (std::uint32_t i = 0; i < dim; ++i) CHECK(std::isnan(back.at(0, i)));
    }
  }
  std::vector<float> values(dim, 0.0f);
  values[1] = 65504.0f;  // the largest f16
  const Rows rows = rows_of({code, dtype, dim, 1}, values);
  const Rows back = decoded(rows.shape, coded(rows));
  for (std::uint32_t i = 0; i < dim; ++i) CHECK(std::isfinite(back.at(0, i)));
}

TEST_CASE("a code is the product with the reciprocal of the step", "[unit][kernels]") {
  // The step is 244, and 366 is 1.5 steps, but 366 * (1 / 244) is below 1.5 in f32.
  const Rows rows = rows_of({RowCode::kInt8, Dtype::kF32, 2, 1}, {244.0f * 127, 366.0f});
  const auto codes = coded(rows);
  CHECK(code_at(rows.shape, codes.data(), 0) == 127);
  CHECK(code_at(rows.shape, codes.data(), 1) == 1);
  const Rows tiny = rows_of({RowCode::kInt8, Dtype::kF32, 2, 1}, {1e-37f, -1e-38f});
  CHECK(coded(tiny) == std::vector<std::byte>(4));
}

TEST_CASE("a row is coded by itself, and a row of zeros stays one", "[unit][kernels]") {
  std::mt19937_64 random(13);
  const RowCode code = GENERATE(RowCode::kInt8, RowCode::kInt6, RowCode::kInt4);
  Rows rows = random_rows(random, {code, Dtype::kBf16, 64, 5});
  std::fill_n(rows.bytes.begin() + 2 * 128, 128, std::byte{0});
  const auto codes = coded(rows);
  const Rows back = decoded(rows.shape, codes);
  for (std::size_t i = 0; i < 64; ++i) CHECK(back.at(2, i) == 0);
  Rows prefix = rows;
  prefix.shape.count = 3;
  prefix.bytes.resize(std::size_t{3} * 128);
  const auto cut = coded(prefix);
  CHECK(std::vector(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(cut.size())) == cut);
}

TEST_CASE("every half converts to f32 and back, and ties go to the even one", "[unit][kernels]") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f16 = f32_of_f16(half), bf16 = f32_of_bf16(half);
    if (!std::isnan(f16)) CHECK(f16_of_f32(f16) == half);
    if (!std::isnan(bf16)) CHECK(bf16_of_f32(bf16) == half);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const float next = f32_of_f16(static_cast<std::uint16_t>(bits + 1));
    const auto even = static_cast<std::uint16_t>(bits + (bits & 1));
    CHECK(f16_of_f32(f16 + (next - f16) / 2) == even);
  }
  CHECK(f16_of_f32(65519.0f) == 0x7bff);
  CHECK(f16_of_f32(65520.0f) == kF16ExponentBits);
  CHECK(std::isnan(f32_of_f16(f16_of_f32(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(f32_of_bf16(bf16_of_f32(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("every f8 converts to f32 and back, and ties go to the even one", "[unit][kernels]") {
  for (std::uint32_t bits = 0; bits <= 0xff; ++bits) {
    const auto octet = static_cast<std::uint8_t>(bits);
    const float x = f32_of_f8(octet);
    if ((bits & 0x7f) == kF8Nan) {
      CHECK((nearest_finite_f8(x) & 0x7f) == kF8Nan);
      continue;
    }
    CHECK(nearest_finite_f8(x) == octet);
    if ((bits & 0x7f) == 0x7e) continue;
    const float next = f32_of_f8(static_cast<std::uint8_t>(bits + 1));
    const float middle = x + (next - x) / 2;
    CHECK(nearest_finite_f8(middle) == bits + (bits & 1));
    CHECK(nearest_finite_f8(std::nextafter(middle, x)) == bits);
    CHECK(nearest_finite_f8(std::nextafter(middle, next)) == bits + 1);
  }
  CHECK(nearest_finite_f8(1e30f) == 0x7e);
  CHECK(nearest_finite_f8(-std::numeric_limits<float>::infinity()) == 0xfe);
}

}  // namespace precis::kernels::test
