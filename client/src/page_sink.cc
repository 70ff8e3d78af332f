#include "client/src/page_sink.h"

#include <algorithm>
#include <span>
#include <string>

#include "client/src/paged_rows.h"

namespace precis {

Status PageSink::check(const ModelSpec& model, std::uint32_t num_heads, const PagesOut& pages) {
  PRECIS_TRY(check_paged_rows(model, pages.keys, pages.values));
  PRECIS_TRY(check_table(pages.table, pages.keys, pages.values));
  const auto starts = pages.starts;
  const std::size_t must = std::size_t{model.num_layers} * num_heads + 1;
  if (starts.size() != must) {
    return Status::invalid("pages: has " + std::to_string(starts.size()) + " starts, must be " +
                           std::to_string(must) + ": one of each head of each layer, and the end");
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

PageSink::PageSink(const PagesOut& pages)
    : keys_(pages.keys),
      values_(pages.values),
      table_(pages.table.begin(), pages.table.end()),
      starts_(pages.starts.begin(), pages.starts.end()) {}

Status PageSink::fill(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
                      std::uint32_t num_heads) const {
  const std::size_t of = std::size_t{layer} * num_heads + head;
  const auto pages = std::span(table_).subspan(starts_[of], starts_[of + 1] - starts_[of]);
  const std::size_t count = entries.positions.size();
  if (count > pages.size() * std::size_t{keys_.page_rows}) {
    return Status::invalid("pages: layer " + std::to_string(layer) + ", head " +
                           std::to_string(head) + " kept " + std::to_string(count) +
                           " rows, there is room for " + std::to_string(pages.size()) +
                           " pages of " + std::to_string(keys_.page_rows));
  }
  scatter_rows(entries.keys.data, count, keys_, pages);
  scatter_rows(entries.values.data, count, values_, pages);
  return {};
}

}  // namespace precis
