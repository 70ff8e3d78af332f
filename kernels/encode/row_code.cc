#include "precis/row_code.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/common/isa.h"
#include "kernels/encode/row_decode_loop.h"
#include "kernels/encode/row_encode_loop.h"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

// ---- rows of any other size ---------------------------------------------------------------------

template <typename T>
void rotate_any(RowCode code, T* x, std::uint32_t head_dim) {
  const std::uint32_t block = rotated_block(code, head_dim);
  for (std::uint32_t first = 0; first < head_dim; first += block) {
    for (std::uint32_t step = block / 2; step > 0; step /= 2) {
      for (std::uint32_t i = first; i < first + block; ++i) {
        if (((i - first) & step) != 0) continue;
        const T a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
}

float element(Dtype dtype, const std::byte* src) {
  if (dtype == Dtype::kF32) return first_element<Dtype::kF32>(src);
  if (dtype == Dtype::kF8E4M3) return first_element<Dtype::kF8E4M3>(src);
  return dtype == Dtype::kBf16 ? first_element<Dtype::kBf16>(src) : first_element<Dtype::kF16>(src);
}
void put_element(Dtype dtype, float x, std::byte* dst) {
  if (dtype == Dtype::kF32) {
    std::memcpy(dst, &x, sizeof x);
    return;
  }
  if (dtype == Dtype::kF8E4M3) {
    *dst = std::byte{nearest_finite_f8(x)};
    return;
  }
  const std::uint16_t half = dtype == Dtype::kBf16 ? bf16_of_f32(x) : nearest_finite_f16(x);
  std::memcpy(dst, &half, sizeof half);
}

void encode_any(const RowForm& form, std::size_t count, const std::byte* rows, std::byte* coded) {
  const std::uint32_t dim = form.head_dim;
  const std::size_t size = dtype_size_bytes(form.dtype);
  std::array<float, limits::kHeadDimMax> x;
  std::array<std::uint8_t, limits::kHeadDimMax> codes;
  for (std::size_t r = 0; r < count; ++r) {
    for (std::uint32_t i = 0; i < dim; ++i) x[i] = element(form.dtype, rows + (r * dim + i) * size);
    rotate_any(form.code, x.data(), dim);
    std::uint32_t largest = 0;  // by its bits, which are in the order of magnitudes
    for (std::uint32_t i = 0; i < dim; ++i) {
      largest = std::max(largest, bits_of_f32(x[i]) & 0x7fffffffu);
    }
    const std::uint16_t step = step_bits(form.code, f32_of_bits(largest));
    std::byte* const out = coded + r * form.bytes();
    std::memcpy(out, &step, sizeof step);
    const float inverse = inverse_step(step);
    for (std::uint32_t i = 0; i < dim; ++i) {
      codes[i] = static_cast<std::uint8_t>(bits_of_f32(x[i] * inverse + kRoundingAddend));
    }
    for (std::uint32_t i = 0; i < form.bytes() - kRowStepBytes; ++i) {
      out[kRowStepBytes + i] = std::byte{packed_byte(form.code, dim, codes.data(), i)};
    }
  }
}

void decode_any(const RowForm& form, std::size_t count, const std::byte* coded, std::byte* rows) {
  const std::uint32_t dim = form.head_dim;
  const std::size_t size = dtype_size_bytes(form.dtype);
  std::array<int, limits::kHeadDimMax> codes;
  for (std::size_t r = 0; r < count; ++r) {
    const std::byte* const in = coded + r * form.bytes();
    std::uint16_t step;
    std::memcpy(&step, in, sizeof step);
    for (std::uint32_t i = 0; i < dim; ++i) {
      codes[i] = unpacked_code(form.code, dim, in + kRowStepBytes, i);
    }
    rotate_any(form.code, codes.data(), dim);
    const float factor = f32_of_bf16(step) / static_cast<float>(rotated_block(form.code, dim));
    for (std::uint32_t i = 0; i < dim; ++i) {
      put_element(form.dtype, static_cast<float>(codes[i]) * factor, rows + (r * dim + i) * size);
    }
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
    case Dtype::kF8E4M3:
      return encodes ? encoder<Dtype::kF8E4M3, code>(isa, form.head_dim)
                     : decoder<Dtype::kF8E4M3, code>(isa, form.head_dim);
  }
  return nullptr;
}
Loop loop_of(bool encodes, const RowForm& form) {
  switch (form.code) {
    case RowCode::kRaw: break;
    case RowCode::kInt8: return loop_of<RowCode::kInt8>(encodes, form);
    case RowCode::kInt6: return loop_of<RowCode::kInt6>(encodes, form);
    case RowCode::kInt4: return loop_of<RowCode::kInt4>(encodes, form);
  }
  return nullptr;
}

}  // namespace

void encode_rows(const RowForm& form, std::size_t count, const std::byte* rows, std::byte* coded) {
  if (form.code == RowCode::kRaw) {
    std::copy_n(rows, count * form.bytes(), coded);
  } else if (const Loop loop = loop_of(/*encodes=*/true, form)) {
    loop(count, rows, coded);
  } else {
    encode_any(form, count, rows, coded);
  }
}

void decode_rows(const RowForm& form, std::size_t count, const std::byte* coded, std::byte* rows) {
  if (form.code == RowCode::kRaw) {
    std::copy_n(coded, count * form.bytes(), rows);
  } else if (const Loop loop = loop_of(/*encodes=*/false, form)) {
    loop(count, coded, rows);
  } else {
    decode_any(form, count, coded, rows);
  }
}

bool decode_to_finite(const RowForm& form, std::size_t count, const std::byte* coded) {
  if (form.code == RowCode::kRaw) return true;
  for (std::size_t r = 0; r < count; ++r) {
    std::uint16_t step;
    std::memcpy(&step, coded + r * form.bytes(), sizeof step);
    if (!decodes_to_finite(form, step)) return false;
  }
  return true;
}

}  // namespace precis::kernels
