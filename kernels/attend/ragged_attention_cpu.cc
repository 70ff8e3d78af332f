// One memory-bound pass over K and V. Rows are read in blocks of sixteen: first the logits of all
// queries of the KV head, then their softmax with the largest logit so far, then the values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/common/exp2_lanes.h"
#include "kernels/common/isa.h"
#include "kernels/common/thread_pool.h"
#include "kernels/score/row_blocks.h"
#include "precis/limits.h"
#include "precis/ragged_attention.h"

namespace precis::kernels {
namespace {

constexpr std::size_t kItemRows = 512;  // of one work item
constexpr std::size_t kTile = 4;        // queries that share the loads of a row
constexpr float kLog2e = 1.44269504f;
constexpr float kNone = -std::numeric_limits<float>::infinity();

// Some rows of one head. Vectors lie in the order of lanes.
struct Item {
  RowSpan keys, values;
  std::size_t tiles;     // of kTile queries of the head
  std::size_t width;     // whole_channels(dim)
  const float* queries;  // [tiles * kTile, width], times scale * log2(e); zeros past the last query
};

// The results of a tile's queries.
struct Part {
  float* largest;  // [kTile] the largest logit
  float* sums;     // [kTile] of exp2(logit - largest)
  float* mixed;    // [kTile, width] of exp2(logit - largest) * v
};

// The results of an item's queries, one tile after another.
struct Parts {
  float* data;
  std::size_t width;
  static std::size_t size(std::size_t tiles, std::size_t width) {
    return tiles * kTile * (2 + width);
  }
  PRECIS_INLINE Part tile(std::size_t t) const {
    float* at = data + t * kTile * (2 + width);
    return {at, at + kTile, at + 2 * kTile};
  }
};

// logits[query][row] of a block of `count` rows; -infinity past them.
template <Dtype dtype>
PRECIS_INLINE void block_logits(const Item& item, std::size_t tile, std::size_t first,
                                std::size_t count, float (*logits)[kRowsInBlock]) {
  const float* queries = item.queries + tile * kTile * item.width;
  float spread[kTile][kRowsInBlock][kLanes];
  for (std::size_t r = 0; r < count; ++r) {
    if (tile == 0) {
      item.keys.prefetch_behind(first + r);
      item.values.prefetch_behind(first + r);
    }
    const std::byte* row = item.keys.row(first + r);
    Lanes sums[kTile] = {};
    for (std::size_t c = 0; c < item.keys.dim; c += kChannels) {
      const Channels k =
          widen_channels<dtype>(row + c * dtype_size_bytes(dtype), item.keys.dim - c);
      for (std::size_t q = 0; q < kTile; ++q) {
        const float* query = queries + q * item.width + c;
        sums[q] += k.a * load_lanes(query);
        sums[q] += k.b * load_lanes(query + kLanes);
      }
    }
    for (std::size_t q = 0; q < kTile; ++q) store_lanes(spread[q][r], sums[q]);
  }
  for (std::size_t q = 0; q < kTile; ++q) {
    for (std::size_t r = count; r < kRowsInBlock; ++r) store_lanes(spread[q][r], Lanes{});
    sum_each(spread[q], logits[q]);
    for (std::size_t r = count; r < kRowsInBlock; ++r) logits[q][r] = kNone;
  }
}

// Replaces the logits by their weights, relative to the largest logit so far.
PRECIS_INLINE void block_weights(const Item& item, const Part& part,
                                 float (*logits)[kRowsInBlock]) {
  for (std::size_t q = 0; q < kTile; ++q) {
    float largest = part.largest[q];
    for (std::size_t r = 0; r < kRowsInBlock; ++r) largest = std::max(largest, logits[q][r]);
    if (largest > part.largest[q]) {
      const float less = exp2_lanes(Lanes{} + (part.largest[q] - largest))[0];  // 0 at first
      part.sums[q] *= less;
      float* mixed = part.mixed + q * item.width;
      for (std::size_t c = 0; c < item.width; c += kLanes) {
        store_lanes(mixed + c, load_lanes(mixed + c) * less);
      }
      part.largest[q] = largest;
    }
    const Lanes weights = exp2_lanes(load_lanes(logits[q]) - largest);
    part.sums[q] += sum_lanes(weights);
    store_lanes(logits[q], weights);
  }
}

// Adds the values of a block of `count` rows.
template <Dtype dtype>
PRECIS_INLINE void add_values(const Item& item, std::size_t first, std::size_t count,
                              const float (*weights)[kRowsInBlock], const Part& part) {
  for (std::size_t c = 0; c < item.values.dim; c += kChannels) {
    Channels mixed[kTile];
    for (std::size_t q = 0; q < kTile; ++q) {
      mixed[q] = load_channels(part.mixed + q * item.width + c);
    }
    for (std::size_t r = 0; r < count; ++r) {
      const std::byte* row = item.values.row(first + r) + c * dtype_size_bytes(dtype);
      const Channels v = widen_channels<dtype>(row, item.values.dim - c);
      for (std::size_t q = 0; q < kTile; ++q) {
        mixed[q].a += v.a * weights[q][r];
        mixed[q].b += v.b * weights[q][r];
      }
    }
    for (std::size_t q = 0; q < kTile; ++q) {
      store_channels(part.mixed + q * item.width + c, mixed[q]);
    }
  }
}

template <Dtype dtype>
struct AttendPass {
  const Item& item;
  const Parts& parts;
  PRECIS_INLINE void operator()(const RowSpan& keys) const {
    Item rows = item;
    rows.keys.dim = rows.values.dim = keys.dim;  // may be a constant
    for (std::size_t first = 0; first < keys.count; first += kRowsInBlock) {
      const std::size_t count = keys.block_count(first);
      for (std::size_t tile = 0; tile < rows.tiles; ++tile) {
        const Part part = parts.tile(tile);
        float logits[kTile][kRowsInBlock];
        block_logits<dtype>(rows, tile, first, count, logits);
        block_weights(rows, part, logits);
        add_values<dtype>(rows, first, count, logits, part);
      }
    }
  }
};

PRECIS_INLINE void attend_loop(const Item& item, const Parts& parts) {
  switch (item.keys.dtype) {
    case Dtype::kBf16:
      return with_dim<Dtype::kBf16>(item.keys, AttendPass<Dtype::kBf16>{item, parts});
    case Dtype::kF16: return with_dim<Dtype::kF16>(item.keys, AttendPass<Dtype::kF16>{item, parts});
    case Dtype::kF32: return with_dim<Dtype::kF32>(item.keys, AttendPass<Dtype::kF32>{item, parts});
    case Dtype::kF8E4M3:
      return with_dim<Dtype::kF8E4M3>(item.keys, AttendPass<Dtype::kF8E4M3>{item, parts});
  }
}

Status check(const RaggedQuery& query, std::span<const float> out) {
  const std::size_t size = std::size_t{query.num_kv_heads} * query.group * query.head_dim;
  if (query.head_dim == 0 || query.head_dim > limits::kHeadDimMax || query.group == 0) {
    return Status::invalid("attention: head_dim is " + std::to_string(query.head_dim) +
                           " and the group " + std::to_string(query.group) +
                           "; both must be at least 1, head_dim at most " +
                           std::to_string(limits::kHeadDimMax));
  }
  if (query.queries.size() != size || out.size() != size) {
    return Status::invalid("attention: " + std::to_string(query.queries.size()) +
                           " elements of queries and " + std::to_string(out.size()) +
                           " of the result, must be " + std::to_string(size));
  }
  for (const RaggedRows& rows : query.rows) {
    if (rows.head < query.num_kv_heads) continue;
    return Status::invalid("attention: rows of KV head " + std::to_string(rows.head) + " of " +
                           std::to_string(query.num_kv_heads));
  }
  return {};
}

// The queries in the order of lanes, [num_kv_heads, tiles * kTile, width].
std::vector<float> lane_queries(const RaggedQuery& query, std::size_t tiles, std::size_t width) {
  std::vector<float> lanes(query.num_kv_heads * tiles * kTile * width);
  const float* from = query.queries.data();
  for (std::size_t head = 0; head < query.num_kv_heads; ++head) {
    for (std::size_t q = 0; q < query.group; ++q, from += query.head_dim) {
      float* row = lanes.data() + (head * tiles * kTile + q) * width;
      for (std::size_t c = 0; c < query.head_dim; ++c) {
        row[lane_of(query.dtype, c)] = from[c] * query.scale * kLog2e;
      }
    }
  }
  return lanes;
}

// Writes the result of query `q` of a head from the parts of its rows.
void merge(const std::vector<float*>& parts, std::size_t q, std::size_t width, Dtype dtype,
           std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  const auto part_of = [&](float* data) { return Parts{data, width}.tile(q / kTile); };
  float largest = kNone;
  for (float* data : parts) largest = std::max(largest, part_of(data).largest[q % kTile]);
  float sum = 0;
  for (float* data : parts) {
    const Part part = part_of(data);
    const float weight = std::exp2(part.largest[q % kTile] - largest);
    const float* mixed = part.mixed + q % kTile * width;
    sum += weight * part.sums[q % kTile];
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += weight * mixed[lane_of(dtype, c)];
  }
  for (float& x : out) x = sum > 0 ? x / sum : 0;
}

}  // namespace

struct RaggedAttention::Impl {
  explicit Impl(unsigned threads) : pool(threads) {}
  ThreadPool pool;
  Isa isa = detect_isa();
};

RaggedAttention::RaggedAttention(unsigned threads) : impl_(std::make_unique<Impl>(threads)) {}
RaggedAttention::~RaggedAttention() = default;

Status RaggedAttention::attend(const RaggedQuery& query, std::span<float> out) const {
  PRECIS_TRY(check(query, out));
  const std::size_t tiles = (query.group + kTile - 1) / kTile;
  const std::size_t width = whole_channels(query.head_dim);
  const std::vector<float> queries = lane_queries(query, tiles, width);
  struct Place {
    const RaggedRows* rows;
    std::uint32_t first;
  };
  std::vector<Place> places;
  for (const RaggedRows& rows : query.rows) {
    for (std::uint32_t first = 0; first < rows.count; first += kItemRows) {
      places.push_back({&rows, first});
    }
  }
  const std::size_t size = Parts::size(tiles, width);
  std::vector<float> results(places.size() * size);
  const auto body = for_isa<&attend_loop>(impl_->isa);
  impl_->pool.parallel_for(places.size(), [&](std::size_t i) {
    const auto [rows, first] = places[i];
    const Parts parts{results.data() + i * size, width};
    for (std::size_t t = 0; t < tiles; ++t) std::fill_n(parts.tile(t).largest, kTile, kNone);
    const std::size_t count = std::min<std::size_t>(kItemRows, rows->count - first);
    const std::size_t offset = std::size_t{first} * query.head_dim * dtype_size_bytes(query.dtype);
    body({{rows->keys + offset, count, query.head_dim, query.dtype},
          {rows->values + offset, count, query.head_dim, query.dtype},
          tiles,
          width,
          queries.data() + rows->head * tiles * kTile * width},
         parts);
  });
  // The parts of a head in the order of its rows, whatever threads computed them.
  std::vector<std::vector<float*>> of_head(query.num_kv_heads);
  for (std::size_t i = 0; i < places.size(); ++i) {
    of_head[places[i].rows->head].push_back(results.data() + i * size);
  }
  for (std::size_t head = 0; head < query.num_kv_heads; ++head) {
    for (std::size_t q = 0; q < query.group; ++q) {
      const auto row = out.subspan((head * query.group + q) * query.head_dim, query.head_dim);
      merge(of_head[head], q, width, query.dtype, row);
    }
  }
  return {};
}

}  // namespace precis::kernels
