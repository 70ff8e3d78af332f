#include "client/src/paged_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

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

// The lines and columns of a tile, whose lines are registers of 16 bytes.
template <typename T>
inline constexpr std::size_t kSide = 16 / sizeof(T);
template <typename T>
struct LineOf {
  using type [[gnu::vector_size(16)]] = T;
};
template <typename T>
using Line = typename LineOf<T>::type;
template <typename T>
using Tile = std::array<Line<T>, kSide<T>>;

// The elements of a and b in turn, from those at `first` on.
template <int first, typename T, int... i>
Line<T> interleaved(Line<T> a, Line<T> b, std::integer_sequence<int, i...>) {
  constexpr int kOther = kSide<T>;
  return __builtin_shufflevector(a, b, (i % 2 * kOther + first + i / 2)...);
}

// Element i of line j becomes element j of line i. Each round moves one bit of the number of an
// element's line to the number of its column, and one back.
template <typename T>
void transpose_tile(Tile<T>& tile) {
  constexpr int kHalf = kSide<T> / 2;
  constexpr auto kAll = std::make_integer_sequence<int, 2 * kHalf>();
  for (std::size_t round = kHalf; round > 0; round /= 2) {
    const Tile<T> in = tile;
    for (std::size_t i = 0; i < kHalf; ++i) {
      tile[2 * i] = interleaved<0, T>(in[i], in[i + kHalf], kAll);
      tile[2 * i + 1] = interleaved<kHalf, T>(in[i], in[i + kHalf], kAll);
    }
  }
}

// Transposes `lines` lines of `length` elements, contiguous in `from`, into `length` lines of
// `lines` elements, contiguous in `to`. Works on blocks of lines that stay in the L1 cache and,
// within a block, on tiles in registers.
template <typename T>
void transpose(const std::byte* from, std::size_t from_stride, std::size_t lines,
               std::size_t length, std::byte* to, std::size_t to_stride) {
  constexpr std::size_t kBlock = 32;
  const auto one = [&](std::size_t line, std::size_t at) {
    std::memcpy(to + at * to_stride + line * sizeof(T), from + line * from_stride + at * sizeof(T),
                sizeof(T));
  };
  Tile<T> tile;
  for (std::size_t block = 0; block < lines; block += kBlock) {
    const std::size_t block_end = std::min(lines, block + kBlock);
    const std::size_t tiled = block + (block_end - block) / kSide<T> * kSide<T>;
    std::size_t at = 0;
    for (; at + kSide<T> <= length; at += kSide<T>) {
      for (std::size_t line = block; line < tiled; line += kSide<T>) {
        const std::byte* const source = from + line * from_stride + at * sizeof(T);
        std::byte* const target = to + at * to_stride + line * sizeof(T);
        for (std::size_t i = 0; i < kSide<T>; ++i) {
          std::memcpy(&tile[i], source + i * from_stride, sizeof tile[i]);
        }
        transpose_tile<T>(tile);
        for (std::size_t i = 0; i < kSide<T>; ++i) {
          std::memcpy(target + i * to_stride, &tile[i], sizeof tile[i]);
        }
      }
      for (std::size_t line = tiled; line < block_end; ++line) {
        for (std::size_t i = 0; i < kSide<T>; ++i) one(line, at + i);
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
  switch (dtype_size_bytes(pages.dtype)) {
    case 4: return copy_elements<std::uint32_t>(from, to, num_rows, pages.head_dim);
    case 2: return copy_elements<std::uint16_t>(from, to, num_rows, pages.head_dim);
    default: return copy_elements<std::uint8_t>(from, to, num_rows, pages.head_dim);
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
