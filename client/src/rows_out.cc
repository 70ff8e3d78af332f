#include "client/src/rows_out.h"

#include <cstring>
#include <string>

namespace precis {
namespace {

std::string name_of(std::size_t layer, const char* which) {
  return "out[" + std::to_string(layer) + "]." + which;
}

Status check_rows(const ModelSpec& model, std::uint32_t num_heads, const std::string& name,
                  const RowsOut& rows) {
  if (rows.num_heads != num_heads || rows.head_dim != model.head_dim) {
    return Status::invalid(name + ": shape [" + std::to_string(rows.num_heads) + ", " +
                           std::to_string(rows.num_tokens) + ", " + std::to_string(rows.head_dim) +
                           "], must be [" + std::to_string(num_heads) + ", n, " +
                           std::to_string(model.head_dim) + "]");
  }
  if (rows.dtype != model.dtype) {
    return Status::invalid(name + ": dtype " + std::string(dtype_name(rows.dtype)) +
                           ", the model's is " + std::string(dtype_name(model.dtype)));
  }
  const std::size_t head_bytes =
      std::size_t{rows.num_tokens} * rows.head_dim * dtype_size_bytes(rows.dtype);
  if (rows.data == nullptr && head_bytes > 0) return Status::invalid(name + ": no memory");
  if (rows.num_heads > 1 && rows.head_stride_bytes < head_bytes) {
    return Status::invalid(name + ": heads of " + std::to_string(head_bytes) + " B stand " +
                           std::to_string(rows.head_stride_bytes) + " B apart and overlap");
  }
  return {};
}

Status copy_rows(const HeadsView& from, const RowsOut& to, std::uint32_t head,
                 const std::string& name) {
  if (from.num_tokens > to.num_tokens) {
    return Status::invalid(name + ": has room for " + std::to_string(to.num_tokens) +
                           " rows a head, head " + std::to_string(head) + " kept " +
                           std::to_string(from.num_tokens));
  }
  if (from.num_tokens > 0) {
    std::memcpy(to.data + head * to.head_stride_bytes, from.data, from.size_bytes());
  }
  return {};
}

}  // namespace

Status check_out(const ModelSpec& model, std::uint32_t num_heads, std::span<const LayerOut> out) {
  if (out.empty()) return {};
  if (out.size() != model.num_layers) {
    return Status::invalid("out: has " + std::to_string(out.size()) + " layers, the model has " +
                           std::to_string(model.num_layers));
  }
  for (std::size_t l = 0; l < out.size(); ++l) {
    PRECIS_TRY(check_rows(model, num_heads, name_of(l, "keys"), out[l].keys));
    PRECIS_TRY(check_rows(model, num_heads, name_of(l, "values"), out[l].values));
  }
  return {};
}

Status copy_head(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
                 const LayerOut& out) {
  PRECIS_TRY(copy_rows(entries.keys, out.keys, head, name_of(layer, "keys")));
  return copy_rows(entries.values, out.values, head, name_of(layer, "values"));
}

}  // namespace precis
