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

void rotate_any(Encoding code, float* x, std::uint32_t head_dim) {
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

void encode_any(const RowForm& form, std::size_t count, const std::byte* rows, std::byte* coded) {
  const std::uint32_t dim = form.head_dim;
  const std::size_t size = dtype_size_bytes(form.dtype);
  std::array<float, limits::kHeadDimMax> x;
  for (std::size_t r = 0; r < count; ++r) {
    for (std::uint32_t i = 0; i < dim; ++i) x[i] = element(form.dtype, rows + (r * dim + i) * size);
    rotate_any(form.encoding, x.data(), dim);
    std::uint32_t largest = 0;  // by its bits, which are in the order of magnitudes
    for (std::uint32_t i = 0; i < dim; ++i) {
      largest = std::max(largest, bits_of_f32(x[i]) & 0x7fffffffu);
    }
    const std::uint16_t step = step_bits(form.encoding, f32_of_bits(largest));
    std::byte* const out = coded + r * form.bytes();
    std::memcpy(out, &step, sizeof step);
    const float inverse = inverse_step(step);
    const auto code_of = [&](std::uint32_t i) {
      return bits_of_f32(x[i] * inverse + kRoundingAddend) & 0xffu;
    };
    for (std::uint32_t i = 0; i < dim && form.encoding == Encoding::kInt8; ++i) {
      out[kRowStepBytes + i] = static_cast<std::byte>(code_of(i));
    }
    for (std::uint32_t i = 0; i < dim / 2 && form.encoding == Encoding::kInt4; ++i) {
      out[kRowStepBytes + i] =
          static_cast<std::byte>((code_of(i) & 0xf) | code_of(i + dim / 2) << 4);
    }
  }
}

void decode_any(const RowForm& form, std::size_t count, const std::byte* coded, std::byte* rows) {
  const std::uint32_t dim = form.head_dim;
  const std::size_t size = dtype_size_bytes(form.dtype);
  std::array<float, limits::kHeadDimMax> x;
  for (std::size_t r = 0; r < count; ++r) {
    const std::byte* const in = coded + r * form.bytes();
    std::uint16_t step;
    std::memcpy(&step, in, sizeof step);
    const float factor = f32_of_bf16(step) / static_cast<float>(rotated_block(form.encoding, dim));
    for (std::uint32_t i = 0; i < dim; ++i) {
      const bool is_high = form.encoding == Encoding::kInt4 && i >= dim / 2;
      auto bits = std::to_integer<std::uint8_t>(in[kRowStepBytes + (is_high ? i - dim / 2 : i)]);
      int code = static_cast<std::int8_t>(bits);
      if (form.encoding == Encoding::kInt4) {
        code = static_cast<std::int8_t>(is_high ? bits : bits << 4) >> 4;
      }
      x[i] = static_cast<float>(code) * factor;
    }
    rotate_any(form.encoding, x.data(), dim);
    for (std::uint32_t i = 0; i < dim; ++i)
      put_element(form.dtype, x[i], rows + (r * dim + i) * size);
  }
}

// ---- the choice ---------------------------------------------------------------------------------

using Loop = void (*)(std::size_t count, const std::byte* from, std::byte* to);

template <Dtype dtype, Encoding code>
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
template <Dtype dtype, Encoding code>
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

template <Encoding code>
Loop loop_of(bool encodes, const RowForm& form) {
  static const Isa isa = detect_isa();
  switch (form.dtype) {
    case Dtype::kF32:
      return encodes ? encoder<Dtype::kF32, code>(isa, form.head_dim)
                     : decoder<Dtype::kF32, code>(isa, form.head_dim);
    case Dtype::kBf16:
      return encodes ? encoder<Dtype::kBf16, code>(isa, form.head_dim)
                     : decoder<Dtype::kBf16, code>(isa, form.head_dim);
    case Dtype::kF16:
      return encodes ? encoder<Dtype::kF16, code>(isa, form.head_dim)
                     : decoder<Dtype::kF16, code>(isa, form.head_dim);
  }
  return nullptr;
}
Loop loop_of(bool encodes, const RowForm& form) {
  return form.encoding == Encoding::kInt8 ? loop_of<Encoding::kInt8>(encodes, form)
                                          : loop_of<Encoding::kInt4>(encodes, form);
}

}  // namespace

void encode_rows(const RowForm& form, std::size_t count, const std::byte* rows, std::byte* coded) {
  if (form.encoding == Encoding::kRaw) {
    std::copy_n(rows, count * form.bytes(), coded);
  } else if (const Loop loop = loop_of(/*encodes=*/true, form)) {
    loop(count, rows, coded);
  } else {
    encode_any(form, count, rows, coded);
  }
}

void decode_rows(const RowForm& form, std::size_t count, const std::byte* coded, std::byte* rows) {
  if (form.encoding == Encoding::kRaw) {
    std::copy_n(coded, count * form.bytes(), rows);
  } else if (const Loop loop = loop_of(/*encodes=*/false, form)) {
    loop(count, coded, rows);
  } else {
    decode_any(form, count, coded, rows);
  }
}

bool decode_to_finite(const RowForm& form, std::size_t count, const std::byte* coded) {
  if (form.encoding == Encoding::kRaw) return true;
  for (std::size_t r = 0; r < count; ++r) {
    std::uint16_t step;
    std::memcpy(&step, coded + r * form.bytes(), sizeof step);
    if (!decodes_to_finite(form, step)) return false;
  }
  return true;
}

}  // namespace precis::kernels
