// The form of the entries of a record: a row of K and a row of V.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "precis/row_form.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// How a record stores the rows of its entries. Values are stored: append only.
enum class Encoding : std::uint8_t {
  kRaw = 0,
  kInt8 = 1,
  kInt4 = 2,
  kK8V4 = 3,  // K in 8 bits, V in 4
  kK6V4 = 4,  // K in 6 bits, V in 4
};
inline constexpr std::array kEncodings = {Encoding::kRaw, Encoding::kInt8, Encoding::kInt4,
                                          Encoding::kK8V4, Encoding::kK6V4};

std::string_view encoding_name(Encoding encoding);  // "raw", "int8", "int4", "k8v4", "k6v4"

// The first version of records, and of segments' rows in the catalog, that has the encoding. Raw
// entries stay readable for builds that know only version 1.
constexpr std::uint16_t encoding_version(Encoding encoding) {
  switch (encoding) {
    case Encoding::kRaw: return 1;
    case Encoding::kInt8:
    case Encoding::kInt4: return 2;
    case Encoding::kK8V4:
    case Encoding::kK6V4: return 3;
  }
  return 0;
}

// The first version of records, and of models' rows in the catalog, that has the element type.
constexpr std::uint16_t dtype_version(Dtype dtype) { return dtype == Dtype::kF8E4M3 ? 4 : 1; }
// The latest version of records and rows.
inline constexpr std::uint16_t kFormVersion = 4;

struct EntryForm {
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;  // the model's: of rows as they are pushed and read
  Encoding encoding = Encoding::kRaw;

  static constexpr EntryForm of(const ModelSpec& model, Encoding encoding = Encoding::kRaw) {
    return {model.head_dim, model.dtype, encoding};
  }
  constexpr RowForm keys() const {
    switch (encoding) {
      case Encoding::kRaw: break;
      case Encoding::kInt8:
      case Encoding::kK8V4: return {head_dim, dtype, RowCode::kInt8};
      case Encoding::kInt4: return {head_dim, dtype, RowCode::kInt4};
      case Encoding::kK6V4: return {head_dim, dtype, RowCode::kInt6};
    }
    return {head_dim, dtype, RowCode::kRaw};
  }
  constexpr RowForm values() const {
    switch (encoding) {
      case Encoding::kRaw: break;
      case Encoding::kInt8: return {head_dim, dtype, RowCode::kInt8};
      case Encoding::kInt4:
      case Encoding::kK8V4:
      case Encoding::kK6V4: return {head_dim, dtype, RowCode::kInt4};
    }
    return {head_dim, dtype, RowCode::kRaw};
  }
  // The size of both stored rows of an entry.
  constexpr std::size_t bytes() const { return keys().bytes() + values().bytes(); }
  // The form of the entries as they are pushed and read.
  constexpr EntryForm raw() const { return {head_dim, dtype, Encoding::kRaw}; }
  // The version of a record of such entries.
  constexpr std::uint16_t version() const {
    const std::uint16_t coded = encoding_version(encoding), typed = dtype_version(dtype);
    return coded > typed ? coded : typed;
  }
  bool operator==(const EntryForm&) const = default;
  // kInvalidArgument if head_dim is 0 or above limits::kHeadDimMax, or does not fill whole bytes of
  // the codes: it must be even for 4 bits, and a multiple of 4 for 6 bits.
  Status validate() const;
};

// The form of each segment's entries. `segments`: pointers to rows of the catalog.
template <typename Segments>
std::vector<EntryForm> entry_forms(const Segments& segments, const ModelSpec& model) {
  std::vector<EntryForm> forms;
  for (const auto& segment : segments) forms.push_back(EntryForm::of(model, segment->encoding));
  return forms;
}

}  // namespace precis
