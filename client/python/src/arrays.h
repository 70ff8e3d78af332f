// Converts between Python arrays and views of precis/view.h, by DLPack, without copies.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "precis/options.h"
#include "precis/view.h"

namespace precis::python {

namespace nb = nanobind;

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;
using FloatArray = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using TokenArray = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A view of `array` [num_heads, n, head_dim]. Rows must be contiguous and follow one another; heads
// may have any stride. Raises InvalidArgument naming `field` otherwise. uint16 is read as the bits
// of bf16.
HeadsView heads_view(const AnyArray& array, const char* field);

// The same for an array that is written to.
using OutArray = nb::ndarray<nb::device::cpu>;
RowsOut rows_out(const OutArray& array, const char* field);

// An array in any memory.
using PageArray = nb::ndarray<>;
// A view of `array` [num_pages, page_rows, head_dim], with any strides. Raises InvalidArgument, or
// Unsupported if the array is neither in host memory nor on a CUDA device.
PagedRows paged_rows(const PageArray& array, const char* field);

// A view of a contiguous float32 array of any shape; empty for none.
std::span<const float> float_view(const std::optional<FloatArray>& array);
std::span<const std::uint32_t> token_view(const TokenArray& tokens);

// NumPy arrays over memory that `owner` keeps alive, read-only.
nb::object array_over(std::span<const std::uint32_t> data, nb::handle owner);
nb::object array_over(std::span<const float> data, nb::handle owner);
// The rows [num_tokens, head_dim] of a view of one head; bf16 comes as its bits in uint16.
nb::object rows_over(const HeadsView& head, nb::handle owner);
// A NumPy array [rows, columns] that owns `data`.
nb::object array_of(std::vector<std::uint32_t> data, std::size_t rows, std::size_t columns);
nb::object array_of(std::vector<float> data, std::size_t rows, std::size_t columns);

// A writable NumPy array of bytes over memory that `owner` keeps alive.
nb::object array_over(MutableBytes memory, nb::handle owner);

// Offers bf16 bits in a uint16 array as a DLPack producer of bfloat16, over the same memory.
nb::object as_bfloat16(nb::handle bits);

}  // namespace precis::python
