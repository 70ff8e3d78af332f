#include "pages.h"

#include <string>

#include "bindings.h"
#include "client/src/page_movers.h"
#include "errors.h"
#include "precis/page_mover.h"

namespace precis::python {

namespace {

std::span<const std::uint32_t> view(const PageNumbers& numbers) {
  return {numbers.data(), numbers.size()};
}

}  // namespace

Pages::Pages(PageArray keys, PageArray values)
    : keys_array_(std::move(keys)),
      values_array_(std::move(values)),
      keys_(paged_rows(keys_array_, "keys")),
      values_(paged_rows(values_array_, "values")) {
  // Checked here so that an engine whose pages cannot be used gets the error at its start, not in
  // each request.
  const auto mover = PageMovers(kernels::make_cuda_page_mover).find(keys_, values_);
  if (!mover.ok()) raise(mover.status());
}

PagesOut Pages::out(const PageNumbers& table, const PageNumbers& starts) const {
  return {keys_, values_, view(table), view(starts)};
}

PagesIn Pages::in(const PageNumbers& table, std::uint32_t first_row,
                  std::uint32_t num_tokens) const {
  if (table.ndim() != 2 || table.shape(0) > UINT32_MAX) {
    raise(Status::invalid("table: has " + std::to_string(table.ndim()) +
                          " dimensions, must be [num_heads, pages]"));
  }
  return {keys_,     values_,   view(table), static_cast<std::uint32_t>(table.shape(0)),
          first_row, num_tokens};
}

std::vector<LayerOut> layers_out(const RowsOutPairs& out) {
  std::vector<LayerOut> layers;
  for (const auto& [keys, values] : out) {
    const std::string name = "out[" + std::to_string(layers.size()) + "]";
    layers.push_back(
        {rows_out(keys, (name + ".keys").c_str()), rows_out(values, (name + ".values").c_str())});
  }
  return layers;
}

std::optional<PagesOut> pages_out(const std::optional<PagesTable>& pages) {
  if (!pages) return std::nullopt;
  const auto& [memory, table, starts] = *pages;
  if (memory == nullptr) raise(Status::invalid("pages: there are none"));
  return memory->out(table, starts);
}

void bind_pages(nb::module_& module) {
  nb::class_<Pages>(module, "Pages")
      .def(nb::init<PageArray, PageArray>(), nb::arg("keys"), nb::arg("values"));
}

}  // namespace precis::python
