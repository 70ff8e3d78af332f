// Paged memory that Python owns.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "precis/options.h"

namespace precis::python {

using PageNumbers = nb::ndarray<const std::uint32_t, nb::c_contig, nb::device::cpu>;

// Two arrays [num_pages, page_rows, head_dim], which this keeps alive.
class Pages {
 public:
  // Raises InvalidArgument or Unsupported.
  Pages(PageArray keys, PageArray values);

  PagesOut out(const PageNumbers& table, const PageNumbers& starts) const;
  // `table` [num_heads, pages]. Raises InvalidArgument.
  PagesIn in(const PageNumbers& table, std::uint32_t first_row, std::uint32_t num_tokens) const;

 private:
  const PageArray keys_array_, values_array_;
  const PagedRows keys_, values_;
};

// The arguments of get: (keys, values) of every layer, and (pages, table, starts).
using RowsOutPairs = std::vector<std::pair<OutArray, OutArray>>;
using PagesTable = std::tuple<const Pages*, PageNumbers, PageNumbers>;
// Views of the arrays; raises InvalidArgument.
std::vector<LayerOut> layers_out(const RowsOutPairs& out);
std::optional<PagesOut> pages_out(const std::optional<PagesTable>& pages);

}  // namespace precis::python
