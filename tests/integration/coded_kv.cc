#include "tests/integration/coded_kv.h"

#include "precis/row_code.h"

namespace precis::testing {

Kv as_read(Kv kv, Encoding encoding) {
  for (LayerKv& layer : kv.layers) {
    const EntryForm entries{layer.keys.view.head_dim, layer.keys.view.dtype, encoding};
    for (Tensor* tensor : {&layer.keys, &layer.values}) {
      HeadsView& view = tensor->view;
      const RowForm form = tensor == &layer.keys ? entries.keys() : entries.values();
      const std::size_t rows = std::size_t{view.num_heads} * view.num_tokens;
      std::vector<std::byte> coded(rows * form.bytes());
      kernels::encode_rows(form, rows, tensor->bytes.data(), coded.data());
      kernels::decode_rows(form, rows, coded.data(), tensor->bytes.data());
      view.data = tensor->bytes.data();
    }
  }
  return kv;
}

}  // namespace precis::testing
