#include "kernels/select/select.h"

#include <algorithm>

#include "kernels/common/segment_shape.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// The ranked tokens [first, last) by (score desc, token asc).
std::vector<std::uint64_t> sorted_keys(const float* scores, std::uint32_t first,
                                       std::uint32_t last) {
  std::vector<std::uint64_t> keys(last - first);
  for (std::uint32_t t = first; t < last; ++t) keys[t - first] = retention_key(scores[t], t);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void append_topk(const float* scores, const SegmentShape& shape,
                 std::vector<std::uint32_t>& order) {
  for (const std::uint64_t key :
       sorted_keys(scores, shape.sinks, shape.num_tokens - shape.recent)) {
    order.push_back(static_cast<std::uint32_t>(key));
  }
}

void append_partition_topk(const float* scores, const SegmentShape& shape,
                           std::vector<std::uint32_t>& order) {
  const std::uint32_t end = shape.num_tokens - shape.recent;
  std::vector<std::vector<std::uint64_t>> partitions;
  for (std::uint32_t first = shape.sinks; first < end;) {
    const std::uint32_t last = end - first > shape.lag ? first + shape.lag : end;
    partitions.push_back(sorted_keys(scores, first, last));
    first = last;
  }
  // Only the last partition can be short, so a rank's takers are a prefix but for that one.
  for (std::size_t rank = 0; !partitions.empty() && rank < partitions[0].size(); ++rank) {
    for (const auto& keys : partitions) {
      if (rank < keys.size()) order.push_back(static_cast<std::uint32_t>(keys[rank]));
    }
  }
}

}  // namespace

Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  std::span<const float> scores, RetentionOrders& orders) {
  const std::uint32_t n = input.num_tokens();
  PRECIS_CHECK(scores.size() == std::size_t{input.num_kv_heads()} * n);
  const SegmentShape shape = SegmentShape::of(recipe, input.begin, n);
  orders.protected_count = shape.protected_count();
  orders.order.resize(input.num_kv_heads());
  context.pool.parallel_for(input.num_kv_heads(), [&](std::size_t head) {
    std::vector<std::uint32_t>& order = orders.order[head];
    order.clear();
    order.reserve(n);
    for (std::uint32_t t = 0; t < shape.sinks; ++t) order.push_back(t);
    for (std::uint32_t i = 1; i <= shape.recent; ++i) order.push_back(n - i);
    const float* head_scores = scores.data() + head * n;
    switch (recipe.selector) {
      case Selector::kTopk: return append_topk(head_scores, shape, order);
      case Selector::kPartitionTopk: return append_partition_topk(head_scores, shape, order);
    }
  });
  return {};
}

}  // namespace precis::kernels
