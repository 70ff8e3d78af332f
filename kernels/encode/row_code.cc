#include "precis/row_code.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/common/isa.h"
#include "kernels/encode/row_code_loops.h"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

// ---- rows of any other size ---------------------------------------------------------------------

void rotate_any(RowCode code, float* x, std::uint32_t head_dim) {
  const std::uint32_t block = rotated_block(code, head_dim);
  for (std::uint32_t first = 0; first < head_dim; first += block) {
    for (std::uint32_t step = block / 2; step > 0; step /= 2) {
      for (std::uint32_t i = first; i < first + block; ++i) {
        if (((i - first) & step) != 0) continue;
        const float a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
}

float element(Dtype dtype, const std::byte* src) {
  if (dtype == Dtype::kF32) return first_element<Dtype::kF32>(src);
  return dtype == Dtype::kBf16 ? first_element<Dtype::kBf16>(src) : first_element<Dtype::kF16>(src);
}
void put_element(Dtype dtype, float x, std::byte* dst) {
  if (dtype == Dtype::kF32) {
    std::memcpy(dst, &x, sizeof x);
    return;
  }
  const std::uint16_t half = dtype == Dtype::kBf16 ? bf16_of_f32(x) : nearest_finite_f16(x);
  std::memcpy(dst, &half, sizeof half);
}

void encode_any(const CodedRows& shape, const std::byte* rows, std::byte* coded) {
  const std::uint32_t dim = shape.head_dim;
  const std::size_t size = dtype_size_bytes(shape.dtype);
  std::array<float, limits::kHeadDimMax> x;
  for (std::size_t r = 0; r < shape.count; ++r) {
    for (std::uint32_t i = 0; i < dim; ++i)
      x[i] = element(shape.dtype, rows + (r * dim + i) * size);
    rotate_any(shape.code, x.data(), dim);
    std::uint32_t largest = 0;  // by its bits, which are in the order of magnitudes
    for (std::uint32_t i = 0; i < dim; ++i) {
      largest = std::max(largest, bits_of_f32(x[i]) & 0x7fffffffu);
    }
    const std::uint16_t step = step_bits(shape.code, f32_of_bits(largest));
    std::byte* const out = coded + r * coded_row_bytes(shape.code, dim);
    std::memcpy(out, &step, sizeof step);
    const float inverse = inverse_step(step);
    const auto code_of = [&](std::uint32_t i) {
      return bits_of_f32(x[i] * inverse + kRoundingAddend) & 0xffu;
    };
    for (std::uint32_t i = 0; i < dim && shape.code == RowCode::kInt8; ++i) {
      out[kRowStepBytes + i] = static_cast<std::byte>(code_of(i));
    }
    for (std::uint32_t i = 0; i < dim / 2 && shape.code == RowCode::kInt4; ++i) {
      out[kRowStepBytes + i] =
          static_cast<std::byte>((code_of(i) & 0xf) | code_of(i + dim / 2) << 4);
    }
  }
}

void decode_any(const CodedRows& shape, const std::byte* coded, std::byte* rows) {
  const std::uint32_t dim = shape.head_dim;
  const std::size_t size = dtype_size_bytes(shape.dtype);
  std::array<float, limits::kHeadDimMax> x;
  for (std::size_t r = 0; r < shape.count; ++r) {
    const std::byte* const in = coded + r * coded_row_bytes(shape.code, dim);
    std::uint16_t step;
    std::memcpy(&step, in, sizeof step);
    const float factor = f32_of_bf16(step) / static_cast<float>(rotated_block(shape.code, dim));
    for (std::uint32_t i = 0; i < dim; ++i) {
      const bool is_high = shape.code == RowCode::kInt4 && i >= dim / 2;
      auto bits = std::to_integer<std::uint8_t>(in[kRowStepBytes + (is_high ? i - dim / 2 : i)]);
      int code = static_cast<std::int8_t>(bits);
      if (shape.code == RowCode::kInt4) {
        code = static_cast<std::int8_t>(is_high ? bits : bits << 4) >> 4;
      }
      x[i] = static_cast<float>(code) * factor;
    }
    rotate_any(shape.code, x.data(), dim);
    for (std::uint32_t i = 0; i < dim; ++i)
      put_element(shape.dtype, x[i], rows + (r * dim + i) * size);
  }
}

// ---- the choice ---------------------------------------------------------------------------------

using Loop = void (*)(std::size_t count, const std::byte* from, std::byte* to);

template <Dtype dtype, RowCode code>
Loop encoder(Isa isa, std::uint32_t head_dim) {
  switch (head_dim) {
    case 16: return for_isa<&encode_loop<dtype, code, 1>>(isa);
    case 32: return for_isa<&encode_loop<dtype, code, 2>>(isa);
    case 64: return for_isa<&encode_loop<dtype, code, 4>>(isa);
    case 128: return for_isa<&encode_loop<dtype, code, 8>>(isa);
    case 256: return for_isa<&encode_loop<dtype, code, 16>>(isa);
    default: return nullptr;
  }
}
template <Dtype dtype, RowCode code>
Loop decoder(Isa isa, std::uint32_t head_dim) {
  switch (head_dim) {
    case 16: return for_isa<&decode_loop<dtype, code, 1>>(isa);
    case 32: return for_isa<&decode_loop<dtype, code, 2>>(isa);
    case 64: return for_isa<&decode_loop<dtype, code, 4>>(isa);
    case 128: return for_isa<&decode_loop<dtype, code, 8>>(isa);
    case 256: return for_isa<&decode_loop<dtype, code, 16>>(isa);
    default: return nullptr;
  }
}

template <RowCode code>
Loop loop_of(bool encodes, const CodedRows& shape) {
  static const Isa isa = detect_isa();
  switch (shape.dtype) {
    case Dtype::kF32:
      return encodes ? encoder<Dtype::kF32, code>(isa, shape.head_dim)
                     : decoder<Dtype::kF32, code>(isa, shape.head_dim);
    case Dtype::kBf16:
      return encodes ? encoder<Dtype::kBf16, code>(isa, shape.head_dim)
                     : decoder<Dtype::kBf16, code>(isa, shape.head_dim);
    case Dtype::kF16:
      return encodes ? encoder<Dtype::kF16, code>(isa, shape.head_dim)
                     : decoder<Dtype::kF16, code>(isa, shape.head_dim);
  }
  return nullptr;
}

Status check(const CodedRows& shape) {
  if (shape.head_dim == 0 || shape.head_dim > limits::kHeadDimMax) {
    return Status::invalid("head_dim is " + std::to_string(shape.head_dim) + ", must be 1 to " +
                           std::to_string(limits::kHeadDimMax));
  }
  if (shape.code == RowCode::kInt4 && shape.head_dim % 2 != 0) {
    return Status::invalid("head_dim is " + std::to_string(shape.head_dim) +
                           ", must be even for codes of 4 bits");
  }
  return {};
}

}  // namespace

Status encode_rows(const CodedRows& shape, const std::byte* rows, std::byte* coded) {
  PRECIS_TRY(check(shape));
  const Loop loop = shape.code == RowCode::kInt8 ? loop_of<RowCode::kInt8>(true, shape)
                                                 : loop_of<RowCode::kInt4>(true, shape);
  if (loop) {
    loop(shape.count, rows, coded);
  } else {
    encode_any(shape, rows, coded);
  }
  return {};
}

Status decode_rows(const CodedRows& shape, const std::byte* coded, std::byte* rows) {
  PRECIS_TRY(check(shape));
  const Loop loop = shape.code == RowCode::kInt8 ? loop_of<RowCode::kInt8>(false, shape)
                                                 : loop_of<RowCode::kInt4>(false, shape);
  if (loop) {
    loop(shape.count, coded, rows);
  } else {
    decode_any(shape, coded, rows);
  }
  return {};
}

}  // namespace precis::kernels
