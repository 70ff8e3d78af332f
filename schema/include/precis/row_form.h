// The form of one stored row of K or V.
#pragma once

#include <cstddef>
#include <cstdint>

#include "precis/types.h"

namespace precis {

// How a row is stored. kernels/include/precis/row_code.h has the bytes of coded rows.
enum class RowCode : std::uint8_t {
  kRaw,   // the elements, as they were pushed
  kInt8,  // a step, and 8 bits per element
  kInt6,  // a step, and 6 bits per element
  kInt4,  // a step, and 4 bits per element
};

inline constexpr std::size_t kRowStepBytes = 2;

struct RowForm {
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;  // the model's: of rows as they are pushed and read
  RowCode code = RowCode::kRaw;

  // The size of a stored row.
  constexpr std::size_t bytes() const {
    switch (code) {
      case RowCode::kRaw: break;
      case RowCode::kInt8: return kRowStepBytes + head_dim;
      case RowCode::kInt6: return kRowStepBytes + (3 * head_dim + 3) / 4;
      case RowCode::kInt4: return kRowStepBytes + head_dim / 2 + head_dim % 2;
    }
    return std::size_t{head_dim} * dtype_size_bytes(dtype);
  }
};

}  // namespace precis
