#include "arrays.h"

#include <memory>
#include <string>
#include <utility>

#include "errors.h"

namespace precis::python {
namespace {

template <typename T>
using Numpy = nb::ndarray<nb::numpy, T>;

// Shape and dtype, which are in host memory even if the rows are on a device.
using Described = nb::ndarray<nb::ro>;

std::string shape_of(const Described& array) {
  std::string text = "[";
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    text += (i ? ", " : "") + std::to_string(array.shape(i));
  }
  return text + "]";
}

constexpr const char* kUnknownDtype =
    ": the dtype is none of bf16 (or its bits as uint16), f16, f32, f8_e4m3 (or its bits as uint8)";

std::optional<Dtype> dtype_of(const Described& array) {
  const nb::dlpack::dtype type = array.dtype();
  if (type.lanes != 1) return std::nullopt;
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return Dtype::kF32;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return Dtype::kF16;
  if (code == nb::dlpack::dtype_code::Bfloat && type.bits == 16) return Dtype::kBf16;
  if (code == nb::dlpack::dtype_code::UInt && type.bits == 16) return Dtype::kBf16;
  if (code == nb::dlpack::dtype_code::UInt && type.bits == 8) return Dtype::kF8E4M3;
  return std::nullopt;
}

std::uint32_t extent(const Described& array, std::size_t dimension, const char* field) {
  if (array.shape(dimension) > UINT32_MAX) {
    raise(Status::invalid(std::string(field) + ": shape " + shape_of(array) + " is too large"));
  }
  return static_cast<std::uint32_t>(array.shape(dimension));
}

// Sets the memory space from DLPack's device numbers.
void place(PagedRows& rows, int device_type, int device_id, const char* field) {
  namespace on = nb::device;
  if (device_type == on::cpu::value || device_type == on::cuda_host::value) return;
  if (device_type != on::cuda::value && device_type != on::cuda_managed::value) {
    raise(Status::unsupported(std::string(field) + ": the array lies on DLPack device (" +
                              std::to_string(device_type) + ", " + std::to_string(device_id) +
                              "), must be in host memory or on a CUDA device"));
  }
  rows.space = MemorySpace::kDevice;
  rows.device = device_id;
}

template <typename T>
nb::object owned_array(std::vector<T> data, std::size_t rows, std::size_t columns) {
  auto owned = std::make_unique<std::vector<T>>(std::move(data));
  T* const first = owned->data();
  const nb::capsule owner(owned.release(),
                          [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(Numpy<T>(first, {rows, columns}, owner));
}

}  // namespace

HeadsView heads_view(const AnyArray& given, const char* field) {
  const Described array(given);
  const std::string name(field);
  if (array.ndim() != 3) {
    raise(Status::invalid(name + ": shape " + shape_of(array) + " has " +
                          std::to_string(array.ndim()) +
                          " dimensions; [heads, n, head_dim] has 3"));
  }
  const std::optional<Dtype> dtype = dtype_of(array);
  if (!dtype) {
    raise(Status::invalid(name + kUnknownDtype));
  }
  HeadsView view{static_cast<const std::byte*>(array.data()),
                 extent(array, 0, field),
                 extent(array, 1, field),
                 extent(array, 2, field),
                 *dtype,
                 0};
  const auto row = static_cast<std::int64_t>(array.shape(2));
  const bool empty = array.size() == 0;  // then the strides have no meaning
  const bool rows_follow = empty || array.shape(1) == 1 || array.stride(1) == row;
  const bool row_contiguous = empty || row == 1 || array.stride(2) == 1;
  if (!empty && view.num_heads > 1 && array.stride(0) < 0) {
    raise(Status::invalid(name + ": heads stand in descending order of address"));
  }
  if (!rows_follow || !row_contiguous) {
    raise(Status::invalid(name + ": rows of [heads, n, head_dim] must be contiguous"));
  }
  view.head_stride_bytes = view.head_bytes();
  if (!empty && view.num_heads > 1) {
    view.head_stride_bytes = static_cast<std::size_t>(array.stride(0)) * dtype_size_bytes(*dtype);
  }
  return view;
}

PagedRows paged_rows(const PageArray& array, const char* field) {
  const Described any(array);
  const std::string name(field);
  const std::optional<Dtype> dtype = dtype_of(any);
  if (!dtype) {
    raise(Status::invalid(name + kUnknownDtype));
  }
  if (any.ndim() != 3 || any.size() == 0) {
    raise(Status::invalid(name + ": shape " + shape_of(any) +
                          ", must be [num_pages, page_rows, head_dim], none of them 0"));
  }
  PagedRows rows;
  place(rows, any.device_type(), any.device_id(), field);
  rows.data = static_cast<std::byte*>(array.data());
  rows.num_pages = any.shape(0);
  rows.page_rows = extent(any, 1, field);
  rows.head_dim = extent(any, 2, field);
  rows.dtype = *dtype;
  const std::uint64_t element = dtype_size_bytes(*dtype);
  // If an extent is 1, its stride may be anything.
  const auto stride = [&](std::size_t dimension) -> std::uint64_t {
    if (any.shape(dimension) > 1 && any.stride(dimension) < 0) {
      raise(Status::invalid(name + ": stands in descending order of address"));
    }
    return any.shape(dimension) > 1 ? static_cast<std::uint64_t>(any.stride(dimension)) * element
                                    : element;
  };
  rows.dim_stride_bytes = stride(2);
  rows.row_stride_bytes = stride(1);
  rows.page_stride_bytes = rows.num_pages > 1
                               ? stride(0)
                               : (rows.page_rows - 1) * rows.row_stride_bytes +
                                     (rows.head_dim - 1) * rows.dim_stride_bytes + element;
  return rows;
}

RowsOut rows_out(const OutArray& array, const char* field) {
  const HeadsView view = heads_view(AnyArray(array), field);
  return {static_cast<std::byte*>(array.data()),
          view.num_heads,
          view.num_tokens,
          view.head_dim,
          view.dtype,
          view.head_stride_bytes};
}

std::span<const float> float_view(const std::optional<FloatArray>& array) {
  if (!array) return {};
  return {array->data(), array->size()};
}

std::span<const std::uint32_t> token_view(const TokenArray& tokens) {
  return {tokens.data(), tokens.size()};
}

nb::object array_over(std::span<const std::uint32_t> data, nb::handle owner) {
  return nb::cast(Numpy<const std::uint32_t>(data.data(), {data.size()}, owner));
}

nb::object array_over(std::span<const float> data, nb::handle owner) {
  return nb::cast(Numpy<const float>(data.data(), {data.size()}, owner));
}

nb::object array_over(MutableBytes memory, nb::handle owner) {
  auto* const first = reinterpret_cast<std::uint8_t*>(memory.data());
  return nb::cast(Numpy<std::uint8_t>(first, {memory.size()}, owner));
}

nb::object rows_over(const HeadsView& head, nb::handle owner) {
  constexpr auto kUInt = static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
  constexpr auto kFloat = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float);
  nb::dlpack::dtype type{kFloat, 32, 1};
  switch (head.dtype) {
    case Dtype::kBf16: type = {kUInt, 16, 1}; break;
    case Dtype::kF16: type = {kFloat, 16, 1}; break;
    case Dtype::kF32: break;
    case Dtype::kF8E4M3: type = {kUInt, 8, 1}; break;
  }
  return nb::cast(
      nb::ndarray<nb::numpy, nb::ro>(head.data, {head.num_tokens, head.head_dim}, owner, {}, type));
}

nb::object array_of(std::vector<std::uint32_t> data, std::size_t rows, std::size_t columns) {
  return owned_array(std::move(data), rows, columns);
}

nb::object array_of(std::vector<float> data, std::size_t rows, std::size_t columns) {
  return owned_array(std::move(data), rows, columns);
}

nb::object as_bfloat16(nb::handle bits) {
  using Bits = nb::ndarray<const std::uint16_t, nb::device::cpu>;
  constexpr auto kBfloat = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
  const auto array = nb::cast<Bits>(bits);
  std::vector<std::size_t> shape(array.ndim());
  std::vector<std::int64_t> strides(array.ndim());
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  // DLPack consumers refuse read-only memory or warn about it, so it is offered as writable;
  // consumers must not write to it.
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<std::uint16_t*>(array.data()), array.ndim(),
                                             shape.data(), bits, strides.data(),
                                             nb::dlpack::dtype{kBfloat, 16, 1}));
}

}  // namespace precis::python
