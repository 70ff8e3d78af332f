#include "tests/integration/random_kv.h"

#include <algorithm>
#include <cstring>

namespace precis::testing {
namespace {

// A magnitude in [1, 2): the exponent of 1.0, random sign and fraction. Never NaN or infinite.
std::uint32_t random_bits(std::mt19937& random, Dtype dtype) {
  const auto bits = static_cast<std::uint32_t>(random());
  switch (dtype) {
    case Dtype::kF32: return 0x3f800000u | (bits & 0x807fffffu);
    case Dtype::kBf16: return 0x3f80u | (bits & 0x807fu);
    case Dtype::kF16: return 0x3c00u | (bits & 0x83ffu);
    case Dtype::kF8E4M3: return 0x38u | (bits & 0x87u);
  }
  return 0;
}

Tensor random_tensor(std::mt19937& random, std::uint32_t num_heads, std::uint32_t num_tokens,
                     const ModelSpec& model) {
  Tensor tensor;
  const std::size_t size = dtype_size_bytes(model.dtype);
  tensor.bytes.resize(std::size_t{num_heads} * num_tokens * model.head_dim * size);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += size) {
    const std::uint32_t bits = random_bits(random, model.dtype);
    std::memcpy(tensor.bytes.data() + at, &bits, size);
  }
  if (num_tokens > 0) {
    tensor.view =
        HeadsView::packed(tensor.bytes.data(), num_heads, num_tokens, model.head_dim, model.dtype);
  }
  return tensor;
}

std::vector<std::byte> copy_rows(const HeadsView& view) {
  return {view.data, view.data + view.size_bytes()};
}

}  // namespace

ModelSpec tiny_model(Dtype dtype) {
  ModelSpec model;
  model.name = "test/tiny";
  model.num_layers = 4;
  model.num_q_heads = 8;
  model.num_kv_heads = 2;
  model.head_dim = 32;
  model.dtype = dtype;
  return model;
}

std::vector<TokenId> random_tokens(std::mt19937& random, std::uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 50'000);
  return tokens;
}

Kv random_kv(std::mt19937& random, const ModelSpec& model, std::uint32_t begin,
             std::uint32_t num_tokens, std::uint32_t num_queries) {
  Kv kv{begin, num_tokens, {}};
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    kv.layers.push_back({random_tensor(random, model.num_kv_heads, num_tokens, model),
                         random_tensor(random, model.num_kv_heads, num_tokens, model),
                         random_tensor(random, model.num_q_heads, num_queries, model)});
  }
  return kv;
}

AllocatedKv::AllocatedKv(Client& client, const Kv& kv) : kv_(kv) {
  std::size_t size = 0;
  for (const LayerKv& layer : kv_.layers) {
    size += layer.keys.bytes.size() + layer.values.bytes.size();
  }
  buffer_ = client.allocate(size).value();
  std::byte* at = buffer_->bytes().data();
  for (LayerKv& layer : kv_.layers) {
    layer.queries.view.data = layer.queries.bytes.data();  // the copy's own
    for (Tensor* tensor : {&layer.keys, &layer.values}) {
      std::memcpy(at, tensor->bytes.data(), tensor->bytes.size());
      tensor->view.data = at;
      at += tensor->bytes.size();
    }
  }
}

Result<msg::SegmentInfo> put_all(Client& client, const Model& model,
                                 const std::vector<TokenId>& tokens, const Kv& kv,
                                 const PutOptions& options, Durability durability) {
  PRECIS_ASSIGN(Put put, client.begin_put(model, tokens, options));
  for (std::uint32_t l = 0; l < kv.layers.size(); ++l) {
    PRECIS_TRY(put.start_layer(l, kv.layers[l].push()));
  }
  return put.commit(durability);
}

PrefixCopy by_position(PrefixCopy prefix) {
  for (auto& layer : prefix) {
    for (HeadCopy& head : layer) {
      std::vector<std::size_t> order(head.positions.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::ranges::sort(order, {}, [&](std::size_t i) { return head.positions[i]; });
      const std::size_t row = order.empty() ? 0 : head.keys.size() / order.size();
      HeadCopy sorted;
      for (const std::size_t i : order) {
        sorted.positions.push_back(head.positions[i]);
        sorted.scores.push_back(head.scores[i]);
        const auto at = static_cast<std::ptrdiff_t>(i * row);
        const auto end = at + static_cast<std::ptrdiff_t>(row);
        sorted.keys.insert(sorted.keys.end(), head.keys.begin() + at, head.keys.begin() + end);
        sorted.values.insert(sorted.values.end(), head.values.begin() + at,
                             head.values.begin() + end);
      }
      head = std::move(sorted);
    }
  }
  return prefix;
}

Result<PrefixCopy> read_all(Client& client, const Model& model, const std::vector<TokenId>& tokens,
                            const Budget& keep) {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, tokens));
  if (!match) return Status::not_found("nothing of the path is stored");
  PRECIS_ASSIGN(const Prefix prefix, client.get(match, keep));
  PRECIS_TRY(prefix.wait());
  return copy_of(prefix);
}

PrefixCopy copy_of(const Prefix& prefix) {
  PrefixCopy copy;
  for (std::uint32_t l = 0; l < prefix.num_layers(); ++l) {
    auto& heads = copy.emplace_back();
    for (std::uint32_t h = 0; h < prefix.model().num_kv_heads; ++h) {
      const HeadEntries e = prefix.head(l, h);
      heads.push_back({{e.positions.begin(), e.positions.end()},
                       {e.seats.begin(), e.seats.end()},
                       {e.scores.begin(), e.scores.end()},
                       copy_rows(e.keys),
                       copy_rows(e.values)});
    }
  }
  return copy;
}

bool rows_are_of(const PrefixCopy& prefix, const std::vector<const Kv*>& path) {
  for (std::size_t l = 0; l < prefix.size(); ++l) {
    for (std::size_t h = 0; h < prefix[l].size(); ++h) {
      const HeadCopy& head = prefix[l][h];
      for (std::size_t i = 0; i < head.positions.size(); ++i) {
        const Kv* of = nullptr;
        for (const Kv* kv : path) {
          const std::uint32_t end = kv->begin + kv->num_tokens;
          if (head.positions[i] >= kv->begin && head.positions[i] < end) of = kv;
        }
        if (of == nullptr) return false;
        const std::uint32_t token = head.positions[i] - of->begin;
        const HeadsView &keys = of->layers[l].keys.view, &values = of->layers[l].values.view;
        const auto row = static_cast<std::uint32_t>(h);
        const std::size_t size = keys.row_bytes();
        if (std::memcmp(head.keys.data() + i * size, keys.row(row, token), size) != 0 ||
            std::memcmp(head.values.data() + i * size, values.row(row, token), size) != 0) {
          return false;
        }
      }
    }
  }
  return true;
}

std::size_t entries_of(const PrefixCopy& prefix) {
  std::size_t count = 0;
  for (const auto& layer : prefix) {
    for (const HeadCopy& head : layer) count += head.positions.size();
  }
  return count;
}

}  // namespace precis::testing
