#include "client/src/page_sink.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>

#include "client/src/paged_rows.h"

namespace precis {

namespace {

Status check_starts(const ModelSpec& model, std::uint32_t num_heads, const PagesOut& pages) {
  const auto starts = pages.starts;
  const std::size_t must = std::size_t{model.num_layers} * num_heads + 1;
  if (starts.size() != must) {
    return Status::invalid("pages: has " + std::to_string(starts.size()) + " starts, must have " +
                           std::to_string(must) + ": one for each head of each layer, and the end");
  }
  const auto falls = std::ranges::is_sorted_until(starts);
  if (falls != starts.end()) {
    return Status::invalid("pages: starts[" + std::to_string(falls - starts.begin()) + "] is " +
                           std::to_string(*falls) + ", less than the one before");
  }
  if (starts.back() > pages.table.size()) {
    return Status::invalid("pages: the last start is " + std::to_string(starts.back()) +
                           ", the table has " + std::to_string(pages.table.size()) + " entries");
  }
  return {};
}

// The addresses of a view's first byte and of its end. The view must have rows.
std::uint64_t begin_of(const HeadsView& rows) { return std::bit_cast<std::uintptr_t>(rows.data); }
std::uint64_t end_of(const HeadsView& rows) { return begin_of(rows) + rows.size_bytes(); }

}  // namespace

Result<PageSink> PageSink::create(const ModelSpec& model, std::uint32_t num_heads,
                                  const PagesOut& pages, PageMovers& movers) {
  PRECIS_TRY(check_paged_rows(model, pages.keys, pages.values));
  PRECIS_TRY(check_table(pages.table, pages.keys, pages.values));
  PRECIS_TRY(check_starts(model, num_heads, pages));
  PRECIS_ASSIGN(auto mover, movers.find(pages.keys, pages.values));
  return PageSink(pages, std::move(mover));
}

PageSink::PageSink(const PagesOut& pages, std::shared_ptr<PageMover> mover)
    : keys_(pages.keys),
      values_(pages.values),
      table_(pages.table.begin(), pages.table.end()),
      starts_(pages.starts.begin(), pages.starts.end()),
      mover_(std::move(mover)) {}

Status PageSink::fill(std::span<const HeadEntries> heads, std::uint32_t layer) const {
  std::vector<PageRun> runs;
  // The buffer's range that holds the rows of all heads.
  const std::byte* rows = nullptr;
  std::uint64_t begin = UINT64_MAX, end = 0;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const HeadEntries& head = heads[h];
    const std::size_t of = layer * heads.size() + h, count = head.positions.size();
    const auto pages = std::span(table_).subspan(starts_[of], starts_[of + 1] - starts_[of]);
    if (count > pages.size() * std::size_t{keys_.page_rows}) {
      return Status::invalid("pages: layer " + std::to_string(layer) + ", head " +
                             std::to_string(h) + " kept " + std::to_string(count) +
                             " rows, there is room for " + std::to_string(pages.size()) +
                             " pages of " + std::to_string(keys_.page_rows) + " rows");
    }
    if (count == 0) continue;
    runs.push_back({begin_of(head.keys), begin_of(head.values), pages, 0, count});
    for (const HeadsView* view : {&head.keys, &head.values}) {
      if (begin_of(*view) < begin) rows = view->data;
      begin = std::min(begin, begin_of(*view));
      end = std::max(end, end_of(*view));
    }
  }
  if (runs.empty()) return {};
  for (PageRun& run : runs) {
    run.keys_at -= begin;
    run.values_at -= begin;
  }
  return mover_->scatter({rows, end - begin}, keys_, values_, runs);
}

}  // namespace precis
