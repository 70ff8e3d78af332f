#include "cachesvc/pipeline/piece_regions.h"

#include <string>

namespace precis {
namespace {

// The bytes that `heads` heads of `head_bytes` each span, with their begins `stride` bytes apart.
std::uint64_t span_bytes(std::uint32_t heads, std::uint64_t head_bytes, std::uint64_t stride) {
  return (heads - 1) * stride + head_bytes;
}

}  // namespace

Status check_regions(const ModelSpec& model, std::uint32_t layer, const msg::PushLayer& piece) {
  const std::string where = "layer " + std::to_string(layer) + ": ";
  const std::uint64_t row_bytes = model.head_dim * dtype_size_bytes(model.dtype);
  const std::uint64_t group = model.num_q_heads / model.num_kv_heads;
  const std::uint64_t head_bytes = std::uint64_t{piece.token_count} * row_bytes;
  // Strides are at most 2^50 B and head counts at most 2^10, so the products cannot overflow.
  auto fits = [&](const char* field, const RemoteRegion& region, std::uint64_t needed) -> Status {
    if (region.size_bytes >= needed) return {};
    return Status::invalid(where + field + " exposes " + std::to_string(region.size_bytes) +
                           " B, " + std::to_string(needed) + " B are needed");
  };
  for (std::uint64_t stride : {piece.keys_head_stride, piece.values_head_stride}) {
    if (stride < head_bytes || stride > (std::uint64_t{1} << 50)) {
      return Status::invalid(where + "head stride is " + std::to_string(stride) +
                             " B, must be at least one head's " + std::to_string(head_bytes) +
                             " B");
    }
  }
  PRECIS_TRY(
      fits("keys", piece.keys, span_bytes(piece.head_count, head_bytes, piece.keys_head_stride)));
  PRECIS_TRY(fits("values", piece.values,
                  span_bytes(piece.head_count, head_bytes, piece.values_head_stride)));
  const std::uint64_t query_rows = std::uint64_t{piece.head_count} * group * piece.num_queries;
  if (piece.queries) PRECIS_TRY(fits("queries", *piece.queries, query_rows * row_bytes));
  if (piece.lse) PRECIS_TRY(fits("lse", *piece.lse, query_rows * sizeof(float)));
  const std::uint64_t means = std::uint64_t{piece.head_count} * group * model.head_dim;
  if (piece.query_mean) {
    PRECIS_TRY(fits("query_mean", *piece.query_mean, means * sizeof(float)));
    PRECIS_TRY(
        fits("query_covariance", *piece.query_covariance, means * model.head_dim * sizeof(float)));
  }
  if (piece.scores) {
    PRECIS_TRY(fits("scores", *piece.scores,
                    std::uint64_t{piece.head_count} * piece.token_count * sizeof(float)));
  }
  return {};
}

}  // namespace precis
