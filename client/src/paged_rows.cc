#include "client/src/paged_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "precis/limits.h"

namespace precis {
namespace {

// ---- checks -------------------------------------------------------------------------------------

constexpr std::uint64_t kReachMax = std::uint64_t{1} << 62;

std::string text(std::uint64_t n) { return std::to_string(n); }

// The distance from the first byte to the end of `count` items of `size_bytes`, `stride` apart.
// More than kReachMax if it exceeds kReachMax.
std::uint64_t reach(std::uint64_t count, std::uint64_t stride, std::uint64_t size_bytes) {
  if (count > 1 && stride > (kReachMax - size_bytes) / (count - 1)) return kReachMax + 1;
  return (count - 1) * stride + size_bytes;
}

Status check_places(const std::string& name, const PagedRows& rows) {
  const std::uint64_t element = dtype_size_bytes(rows.dtype);
  const std::uint64_t row = reach(rows.head_dim, rows.dim_stride_bytes, element);
  const std::uint64_t column = reach(rows.page_rows, rows.row_stride_bytes, element);
  const bool apart = (rows.head_dim == 1 || rows.dim_stride_bytes >= element) &&
                     (rows.page_rows == 1 || rows.row_stride_bytes >= element) &&
                     (rows.head_dim == 1 || rows.page_rows == 1 || rows.row_stride_bytes >= row ||
                      rows.dim_stride_bytes >= column);
  const std::string strides = name + ": rows stand " + text(rows.row_stride_bytes) +
                              " B apart and their elements " + text(rows.dim_stride_bytes) + " B";
  if (!apart) return Status::invalid(strides + ", they overlap");
  const std::uint64_t page =
      row > kReachMax ? row : reach(rows.page_rows, rows.row_stride_bytes, row);
  if (page > rows.page_stride_bytes) {
    return Status::invalid(strides + ", so a page is longer than the " +
                           text(rows.page_stride_bytes) + " B from one page to the next");
  }
  if (rows.num_pages > kReachMax / rows.page_stride_bytes) {
    return Status::invalid(name + ": " + text(rows.num_pages) + " pages " +
                           text(rows.page_stride_bytes) + " B apart, more than any memory has");
  }
  return {};
}

Status check_rows(const ModelSpec& model, const std::string& name, const PagedRows& rows) {
  if (rows.dtype != model.dtype) {
    return Status::invalid(name + ": dtype " + std::string(dtype_name(rows.dtype)) +
                           ", the model's is " + std::string(dtype_name(model.dtype)));
  }
  if (rows.head_dim != model.head_dim) {
    return Status::invalid(name + ": head_dim " + text(rows.head_dim) + ", the model has " +
                           text(model.head_dim));
  }
  if (rows.num_pages == 0 || rows.page_rows == 0) {
    return Status::invalid(name + ": " + text(rows.num_pages) + " pages of " +
                           text(rows.page_rows) + " rows, must be at least one of each");
  }
  if (rows.data == nullptr) return Status::invalid(name + ": no memory");
  return check_places(name, rows);
}

// ---- copying ------------------------------------------------------------------------------------

// Rows of elements, with any strides.
template <typename Byte>
struct Rows {
  Byte* data;
  std::size_t row_stride, dim_stride;
};

using Words = std::uint32_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
using Doubles = std::uint64_t __attribute__((vector_size(16)));

// Element i of in[j] becomes element j of out[i].
void transpose_tile(const std::array<Words, 4>& in, std::array<Words, 4>& out) {
  const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

void transpose_tile(const std::array<Halves, 8>& in, std::array<Halves, 8>& out) {
  // Interleaves the elements of two lines, then the resulting words of two pairs, then the
  // resulting 64-bit words of two such groups.
  std::array<Words, 4> low, high;  // [pair of lines] columns 0 to 3, 4 to 7
  for (std::size_t pair = 0; pair < 4; ++pair) {
    const Halves a = in[2 * pair], b = in[2 * pair + 1];
    low[pair] = std::bit_cast<Words>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    high[pair] = std::bit_cast<Words>(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  }
  std::size_t column = 0;
  for (const auto& half : {low, high}) {
    const auto lower = [&](std::size_t a) {
      return std::bit_cast<Doubles>(__builtin_shufflevector(half[a], half[a + 1], 0, 4, 1, 5));
    };
    const auto upper = [&](std::size_t a) {
      return std::bit_cast<Doubles>(__builtin_shufflevector(half[a], half[a + 1], 2, 6, 3, 7));
    };
    for (const auto& [a, b] : {std::pair{lower(0), lower(2)}, std::pair{upper(0), upper(2)}}) {
      out[column++] = std::bit_cast<Halves>(__builtin_shufflevector(a, b, 0, 2));
      out[column++] = std::bit_cast<Halves>(__builtin_shufflevector(a, b, 1, 3));
    }
  }
}

template <typename T>
using Lanes = std::conditional_t<sizeof(T) == 4, Words, Halves>;

// Transposes `lines` lines of `length` elements, contiguous in `from`, into `length` lines of
// `lines` elements, contiguous in `to`. Works on blocks of lines that stay in the L1 cache and,
// within a block, on tiles in registers.
template <typename T>
void transpose(const std::byte* from, std::size_t from_stride, std::size_t lines,
               std::size_t length, std::byte* to, std::size_t to_stride) {
  constexpr std::size_t kSide = 16 / sizeof(T), kBlock = 32;
  const auto one = [&](std::size_t line, std::size_t at) {
    std::memcpy(to + at * to_stride + line * sizeof(T), from + line * from_stride + at * sizeof(T),
                sizeof(T));
  };
  std::array<Lanes<T>, kSide> in, out;
  for (std::size_t block = 0; block < lines; block += kBlock) {
    const std::size_t block_end = std::min(lines, block + kBlock);
    const std::size_t tiled = block + (block_end - block) / kSide * kSide;
    std::size_t at = 0;
    for (; at + kSide <= length; at += kSide) {
      for (std::size_t line = block; line < tiled; line += kSide) {
        const std::byte* const source = from + line * from_stride + at * sizeof(T);
        std::byte* const target = to + at * to_stride + line * sizeof(T);
        for (std::size_t i = 0; i < kSide; ++i) std::memcpy(&in[i], source + i * from_stride, 16);
        transpose_tile(in, out);
        for (std::size_t i = 0; i < kSide; ++i) std::memcpy(target + i * to_stride, &out[i], 16);
      }
      for (std::size_t line = tiled; line < block_end; ++line) {
        for (std::size_t i = 0; i < kSide; ++i) one(line, at + i);
      }
    }
    for (; at < length; ++at) {
      for (std::size_t line = block; line < block_end; ++line) one(line, at);
    }
  }
}

template <typename T>
void copy_elements(const Rows<const std::byte>& from, const Rows<std::byte>& to,
                   std::size_t num_rows, std::size_t head_dim) {
  constexpr std::size_t kSize = sizeof(T);
  const std::size_t row_bytes = head_dim * kSize;
  const bool from_in_rows = head_dim == 1 || from.dim_stride == kSize;
  const bool to_in_rows = head_dim == 1 || to.dim_stride == kSize;
  if (from_in_rows && to_in_rows) {
    if (from.row_stride == row_bytes && to.row_stride == row_bytes) {
      std::memcpy(to.data, from.data, num_rows * row_bytes);
      return;
    }
    for (std::size_t r = 0; r < num_rows; ++r) {
      std::memcpy(to.data + r * to.row_stride, from.data + r * from.row_stride, row_bytes);
    }
  } else if (from_in_rows && to.row_stride == kSize) {
    transpose<T>(from.data, from.row_stride, num_rows, head_dim, to.data, to.dim_stride);
  } else if (to_in_rows && from.row_stride == kSize) {
    transpose<T>(from.data, from.dim_stride, head_dim, num_rows, to.data, to.row_stride);
  } else {
    for (std::size_t r = 0; r < num_rows; ++r) {
      for (std::size_t d = 0; d < head_dim; ++d) {
        std::memcpy(to.data + r * to.row_stride + d * to.dim_stride,
                    from.data + r * from.row_stride + d * from.dim_stride, kSize);
      }
    }
  }
}

void copy(const Rows<const std::byte>& from, const Rows<std::byte>& to, std::size_t num_rows,
          const PagedRows& pages) {
  if (dtype_size_bytes(pages.dtype) == 4) {
    copy_elements<std::uint32_t>(from, to, num_rows, pages.head_dim);
  } else {
    copy_elements<std::uint16_t>(from, to, num_rows, pages.head_dim);
  }
}

// Calls run(address of a page's row, number of rows from there, number of rows before) page by
// page.
template <typename Run>
void each_run(const PagedRows& pages, std::span<const std::uint32_t> table, std::uint64_t first_row,
              std::uint64_t num_rows, const Run& run) {
  PRECIS_CHECK(first_row + num_rows <= table.size() * std::uint64_t{pages.page_rows});
  for (std::uint64_t done = 0; done < num_rows;) {
    const std::uint64_t at = first_row + done, row = at % pages.page_rows;
    const std::uint64_t count = std::min(num_rows - done, pages.page_rows - row);
    const std::uint64_t page = table[at / pages.page_rows];
    run(pages.data + page * pages.page_stride_bytes + row * pages.row_stride_bytes, count, done);
    done += count;
  }
}

}  // namespace

Status check_paged_rows(const ModelSpec& model, const PagedRows& keys, const PagedRows& values) {
  PRECIS_TRY(check_rows(model, "pages.keys", keys));
  PRECIS_TRY(check_rows(model, "pages.values", values));
  if (keys.page_rows == values.page_rows) return {};
  return Status::invalid("pages: pages of keys have " + text(keys.page_rows) +
                         " rows, pages of values " + text(values.page_rows) +
                         "; both must have the same");
}

Status check_table(std::span<const std::uint32_t> table, const PagedRows& keys,
                   const PagedRows& values) {
  if (table.size() > limits::kPageTableMax) {
    return Status::invalid("pages: the table has " + text(table.size()) +
                           " entries, the limit is " + text(limits::kPageTableMax));
  }
  const std::uint64_t pages = std::min(keys.num_pages, values.num_pages);
  const auto beyond =
      std::ranges::find_if(table, [&](std::uint32_t page) { return page >= pages; });
  if (beyond == table.end()) return {};
  return Status::invalid("pages: table[" +
                         text(static_cast<std::uint64_t>(beyond - table.begin())) + "] is " +
                         text(*beyond) + ", there are " + text(pages) + " pages");
}

void scatter_rows(const std::byte* rows, std::uint64_t first_row, std::uint64_t num_rows,
                  const PagedRows& to, std::span<const std::uint32_t> table) {
  const std::size_t element = dtype_size_bytes(to.dtype), row_bytes = to.row_bytes();
  each_run(to, table, first_row, num_rows,
           [&](std::byte* place, std::uint64_t count, std::uint64_t done) {
             copy({rows + done * row_bytes, row_bytes, element},
                  {place, to.row_stride_bytes, to.dim_stride_bytes}, count, to);
           });
}

void gather_rows(const PagedRows& from, std::span<const std::uint32_t> table,
                 std::uint64_t first_row, std::uint64_t num_rows, std::byte* rows) {
  const std::size_t element = dtype_size_bytes(from.dtype), row_bytes = from.row_bytes();
  each_run(from, table, first_row, num_rows,
           [&](const std::byte* place, std::uint64_t count, std::uint64_t done) {
             copy({place, from.row_stride_bytes, from.dim_stride_bytes},
                  {rows + done * row_bytes, row_bytes, element}, count, from);
           });
}

}  // namespace precis
