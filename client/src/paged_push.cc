#include "client/src/paged_push.h"

#include <cstring>
#include <string>
#include <vector>

#include "client/src/paged_rows.h"

namespace precis {
namespace {

constexpr std::size_t kAlign = 64;  // of each array, in bytes

std::string text(std::uint64_t n) { return std::to_string(n); }

std::size_t aligned(std::size_t size_bytes) { return (size_bytes + kAlign - 1) / kAlign * kAlign; }

HeadsView rows_at(const std::byte* memory, const PagesIn& pages) {
  return HeadsView::packed(memory, pages.num_heads, pages.num_tokens, pages.keys.head_dim,
                           pages.keys.dtype);
}

std::size_t rows_bytes(const PagesIn& pages) {
  return aligned(rows_at(nullptr, pages).size_bytes());
}

std::span<const std::uint32_t> table_of(const PagesIn& pages, std::uint32_t head) {
  const std::size_t count = pages.table.size() / pages.num_heads;
  return pages.table.subspan(head * count, count);
}

}  // namespace

Status check_paged_push(const ModelSpec& model, std::uint32_t path_tokens, const LayerPush& push) {
  const PagesIn& pages = *push.pages;
  if (!push.keys.empty() || !push.values.empty()) {
    return Status::invalid("pages: give keys and values in pages or as views, not both");
  }
  PRECIS_TRY(check_paged_rows(model, pages.keys, pages.values));
  if (pages.num_heads == 0 || pages.num_heads > model.num_kv_heads || pages.num_tokens == 0 ||
      pages.num_tokens > path_tokens) {
    return Status::invalid("pages: " + text(pages.num_tokens) + " tokens of " +
                           text(pages.num_heads) + " heads, must be 1 to " + text(path_tokens) +
                           " tokens of 1 to " + text(model.num_kv_heads) + " heads");
  }
  if (pages.table.size() % pages.num_heads != 0) {
    return Status::invalid("pages: the table has " + text(pages.table.size()) +
                           " entries, must be [" + text(pages.num_heads) + ", pages]");
  }
  PRECIS_TRY(check_table(pages.table, pages.keys, pages.values));
  const std::uint64_t count = pages.table.size() / pages.num_heads;
  const std::uint64_t end = std::uint64_t{pages.first_row} + pages.num_tokens;
  if (end <= count * pages.keys.page_rows) return {};
  return Status::invalid("pages: rows [" + text(pages.first_row) + ", " + text(end) +
                         ") of each head, its " + text(count) + " pages hold " +
                         text(count * pages.keys.page_rows));
}

std::size_t staged_bytes(const LayerPush& push) {
  const std::size_t queries = push.queries.empty() ? 0 : aligned(push.queries.size_bytes());
  return 2 * rows_bytes(*push.pages) + queries;
}

LayerPush staged_push(const LayerPush& push, Bytes memory) {
  LayerPush staged = push;
  const std::size_t rows = rows_bytes(*push.pages);
  staged.pages.reset();
  staged.keys = rows_at(memory.data(), *push.pages);
  staged.values = rows_at(memory.data() + rows, *push.pages);
  if (!push.queries.empty()) {
    const HeadsView& queries = push.queries;
    staged.queries = HeadsView::packed(memory.data() + 2 * rows, queries.num_heads,
                                       queries.num_tokens, queries.head_dim, queries.dtype);
  }
  return staged;
}

Status fill_piece(const LayerPush& push, const PutPiece& piece, PageMover& mover,
                  MutableBytes memory) {
  const PagesIn& pages = *push.pages;
  const HeadsView& keys = piece.push.keys;
  const std::size_t rows = rows_bytes(pages);
  // If the push covers the whole path, only the new tokens are sent.
  const auto skipped_bytes = static_cast<std::size_t>(keys.data - memory.data());
  const std::uint64_t first_row = pages.first_row + skipped_bytes / keys.row_bytes();
  std::vector<PageRun> runs;
  for (std::uint32_t h = 0; h < pages.num_heads; ++h) {
    const std::size_t at = skipped_bytes + h * keys.head_stride_bytes;
    runs.push_back({at, at + rows, table_of(pages, h), first_row, keys.num_tokens});
  }
  PRECIS_TRY(mover.gather(pages.keys, pages.values, runs, memory));
  std::byte* to = memory.data() + 2 * rows;
  for (std::uint32_t h = 0; h < push.queries.num_heads; ++h, to += push.queries.head_bytes()) {
    std::memcpy(to, push.queries.head(h), push.queries.head_bytes());
  }
  return {};
}

}  // namespace precis
