// The form of a row of K or V in a record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// How a record stores a row. Values are stored: append only. kernels/include/precis/row_code.h has
// the bytes of coded rows.
enum class Encoding : std::uint8_t {
  kRaw = 0,   // the elements, as they were pushed
  kInt8 = 1,  // a step, and 8 bits per element
  kInt4 = 2,  // a step, and 4 bits per element
};

std::string_view encoding_name(Encoding encoding);  // "raw", "int8", "int4"

inline constexpr std::size_t kRowStepBytes = 2;

struct RowForm {
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;  // the model's: of rows as they are pushed and read
  Encoding encoding = Encoding::kRaw;

  static constexpr RowForm of(const ModelSpec& model, Encoding encoding = Encoding::kRaw) {
    return {model.head_dim, model.dtype, encoding};
  }
  // The size of a stored row.
  constexpr std::size_t bytes() const {
    switch (encoding) {
      case Encoding::kRaw: break;
      case Encoding::kInt8: return kRowStepBytes + head_dim;
      case Encoding::kInt4: return kRowStepBytes + head_dim / 2 + head_dim % 2;
    }
    return std::size_t{head_dim} * dtype_size_bytes(dtype);
  }
  constexpr RowForm raw() const { return {head_dim, dtype, Encoding::kRaw}; }
  bool operator==(const RowForm&) const = default;
  // kInvalidArgument if head_dim is 0 or above limits::kHeadDimMax, or odd for kInt4.
  Status validate() const;
};

// The form of each segment's rows. `segments`: pointers to rows of the catalog.
template <typename Segments>
std::vector<RowForm> row_forms(const Segments& segments, const ModelSpec& model) {
  std::vector<RowForm> forms;
  for (const auto& segment : segments) forms.push_back(RowForm::of(model, segment->encoding));
  return forms;
}

}  // namespace precis
