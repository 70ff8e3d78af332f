// KV without a model: random, finite, from a seed; put as a prefill worker would, and compared with
// what is read.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "precis/client.h"

namespace precis::testing {

// [num_heads, num_tokens, head_dim]
struct Tensor {
  std::vector<std::byte> bytes;
  HeadsView view;
};

struct LayerKv {
  Tensor keys, values, queries;
  LayerPush push() const {
    LayerPush push;
    push.keys = keys.view;
    push.values = values.view;
    push.queries = queries.view;
    return push;
  }
};

// KV of tokens [begin, begin + num_tokens) of a path.
struct Kv {
  std::uint32_t begin = 0, num_tokens = 0;
  std::vector<LayerKv> layers;
};

// The same KV in a buffer of the client, where a service on this host reads it in place.
class AllocatedKv {
 public:
  AllocatedKv(Client& client, const Kv& kv);
  const Kv& kv() const { return kv_; }
  MutableBytes bytes() const { return buffer_->bytes(); }

 private:
  Kv kv_;
  std::shared_ptr<HostBuffer> buffer_;
};

ModelSpec tiny_model(Dtype dtype = Dtype::kF32);

std::vector<TokenId> random_tokens(std::mt19937& random, std::uint32_t count);

// With the queries of the last `num_queries` tokens.
Kv random_kv(std::mt19937& random, const ModelSpec& model, std::uint32_t begin,
             std::uint32_t num_tokens, std::uint32_t num_queries = 0);

// begin_put, every layer, commit.
Result<msg::SegmentInfo> put_all(Client& client, const Model& model,
                                 const std::vector<TokenId>& tokens, const Kv& kv,
                                 const PutOptions& options,
                                 Durability durability = Durability::kWal);

// A reader's entries, copied out of the Prefix; equal prefixes are bitwise equal here.
struct HeadCopy {
  std::vector<std::uint32_t> positions, seats;
  std::vector<float> scores;
  std::vector<std::byte> keys, values;
  bool operator==(const HeadCopy&) const = default;
};
using PrefixCopy = std::vector<std::vector<HeadCopy>>;  // [layer][head]

// For a prefix that has arrived.
PrefixCopy copy_of(const Prefix& prefix);

// The entries of each head by position, without their seats: a split and a consolidation number
// them anew.
PrefixCopy by_position(PrefixCopy prefix);

// lookup, get, wait, copy.
Result<PrefixCopy> read_all(Client& client, const Model& model, const std::vector<TokenId>& tokens,
                            const Budget& keep = Budget::all());

// True if every entry's K and V rows are those of its position in `path`, segment after segment.
bool rows_are_of(const PrefixCopy& prefix, const std::vector<const Kv*>& path);

std::size_t entries_of(const PrefixCopy& prefix);

}  // namespace precis::testing
