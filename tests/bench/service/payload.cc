#include "tests/bench/service/payload.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "tests/bench/service/stage.h"

namespace precis::bench {

ModelSpec bench_model(std::uint32_t num_layers) {
  ModelSpec model;
  model.name = "bench";
  model.num_layers = num_layers;
  model.num_q_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.dtype = Dtype::kBf16;
  return model;
}

Payload::Payload(const ModelSpec& model, std::size_t bytes)
    : model_(model),
      tokens_(std::max<std::uint32_t>(1, static_cast<std::uint32_t>(bytes / model.token_bytes()))) {
  const std::size_t count =
      std::size_t{model.num_layers} * model.num_kv_heads * tokens_ * model.head_dim;
  std::mt19937_64 random(1);
  const auto memory = std::make_shared<std::vector<std::uint16_t>>(2 * count);
  // The top bit of the exponent is clear, so every element is finite.
  for (auto& element : *memory) element = static_cast<std::uint16_t>(random() & 0xbfff);
  data_ = *memory;
  memory_ = memory;
}

Result<Payload> Payload::copy_for(Client& client) const {
  PRECIS_ASSIGN(const std::shared_ptr<HostBuffer> buffer, client.allocate(bytes()));
  Payload copy = *this;
  copy.data_ = {reinterpret_cast<std::uint16_t*>(buffer->bytes().data()), data_.size()};
  copy.memory_ = buffer;
  std::ranges::copy(data_, copy.data_.begin());
  return copy;
}

LayerPush Payload::layer(std::uint32_t l) const {
  const std::size_t skip = std::size_t{l} * model_.num_kv_heads * tokens_ * model_.head_dim;
  LayerPush push;
  const std::uint16_t* const keys = data_.data() + skip;
  const std::uint16_t* const values = keys + data_.size() / 2;
  push.keys = HeadsView::packed(keys, model_.num_kv_heads, tokens_, model_.head_dim, model_.dtype);
  push.values =
      HeadsView::packed(values, model_.num_kv_heads, tokens_, model_.head_dim, model_.dtype);
  return push;
}

std::vector<TokenId> Payload::path(std::uint32_t number) const {
  std::vector<TokenId> out(tokens_, 7);
  out[0] = number;
  return out;
}

PutOptions keep_everything() {
  PutOptions options;
  options.recipe = "streaming_llm";
  options.keep = Budget::all();
  return options;
}

Result<PutSeconds> put(Client& client, const Model& model, const Payload& payload,
                       std::uint32_t path, const PutOptions& options, Durability durability) {
  const auto tokens = payload.path(path);
  PutSeconds seconds;
  const auto began = std::chrono::steady_clock::now();
  PRECIS_ASSIGN(Put put, client.begin_put(model, tokens, options));
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    PRECIS_TRY(put.start_layer(l, payload.layer(l)));
  }
  PRECIS_TRY(put.wait_layers());
  seconds.ingest = seconds_since(began);
  PRECIS_ASSIGN(const msg::SegmentInfo stored, put.commit(durability));
  seconds.whole = seconds_since(began);
  seconds.segment = stored.id;
  return seconds;
}

Result<LookupMatch> find(Client& client, const Model& model, const Payload& payload,
                         std::uint32_t path) {
  PRECIS_ASSIGN(LookupMatch match, client.lookup(model, payload.path(path)));
  if (match.matched_tokens != payload.tokens()) {
    return Status::internal("a put of " + std::to_string(payload.tokens()) +
                            " tokens is found with " + std::to_string(match.matched_tokens));
  }
  return match;
}

Result<LookupMatch> find_hot(Client& client, const Model& model, const Payload& payload,
                             std::uint32_t path) {
  PRECIS_ASSIGN(LookupMatch match, find(client, model, payload, path));
  if (match.links.back().segment.in_memory) return match;
  PRECIS_TRY(get(client, match).status());
  PRECIS_ASSIGN(match, find(client, model, payload, path));
  if (match.links.back().segment.in_memory) return match;
  return Status::internal("a segment that was just read is not in memory");
}

Result<std::uint64_t> get(Client& client, const LookupMatch& match) {
  PRECIS_ASSIGN(const Prefix prefix, client.get(match));
  PRECIS_TRY(prefix.wait());
  return prefix.bytes();
}

namespace {

Result<Prefix> got(Client& client, const LookupMatch& match) {
  PRECIS_ASSIGN(Prefix prefix, client.get(match));
  PRECIS_TRY(prefix.wait());
  return prefix;
}

// Checks that every row is the row that was pushed at its position.
Status check_rows(const Prefix& prefix, const Payload& payload) {
  const ModelSpec& model = prefix.model();
  const std::size_t row = model.head_dim * dtype_size_bytes(model.dtype);
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    const LayerPush pushed = payload.layer(l);
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      const HeadEntries entries = prefix.head(l, h);
      for (std::uint32_t i = 0; i < entries.positions.size(); ++i) {
        const std::uint32_t token = entries.positions[i];
        if (token >= payload.tokens() ||
            std::memcmp(entries.keys.row(0, i), pushed.keys.row(h, token), row) != 0 ||
            std::memcmp(entries.values.row(0, i), pushed.values.row(h, token), row) != 0) {
          return Status::internal("a get gave other bytes than were put");
        }
      }
    }
  }
  return {};
}

}  // namespace

Status check_bytes(Client& client, const LookupMatch& match, const Payload& payload) {
  PRECIS_ASSIGN(const Prefix prefix, got(client, match));
  for (std::uint32_t l = 0; l < prefix.model().num_layers; ++l) {
    for (std::uint32_t h = 0; h < prefix.model().num_kv_heads; ++h) {
      const std::size_t count = prefix.head(l, h).positions.size();
      if (count == payload.tokens()) continue;
      return Status::internal("a get gave " + std::to_string(count) + " of " +
                              std::to_string(payload.tokens()) + " entries");
    }
  }
  return check_rows(prefix, payload);
}

Status check_kept(Client& client, const LookupMatch& match, const Payload& payload) {
  PRECIS_ASSIGN(const Prefix first, got(client, match));
  PRECIS_ASSIGN(const Prefix second, got(client, match));
  PRECIS_TRY(check_rows(first, payload));
  PRECIS_TRY(check_rows(second, payload));
  std::uint64_t entries = 0;
  for (std::uint32_t l = 0; l < first.model().num_layers; ++l) {
    for (std::uint32_t h = 0; h < first.model().num_kv_heads; ++h) {
      const auto positions = first.head(l, h).positions;
      entries += positions.size();
      if (!std::ranges::equal(positions, second.head(l, h).positions)) {
        return Status::internal("two gets of one segment gave other entries");
      }
    }
  }
  const std::uint64_t stored = match.links.back().segment.entries;
  return entries == stored ? Status()
                           : Status::internal("a get gave " + std::to_string(entries) + " of " +
                                              std::to_string(stored) + " entries");
}

}  // namespace precis::bench
