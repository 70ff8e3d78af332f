// Random K and V, and puts and gets of them as an engine does them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "precis/client.h"

namespace precis::bench {

// A model with `num_layers` layers of the shape of Llama-3.1-8B's.
ModelSpec bench_model(std::uint32_t num_layers);

// K and V of one put: as many tokens as fit `bytes`, at least one. All elements are finite bf16.
// Every layer has its own part of the data.
class Payload {
 public:
  // In memory that no client has allocated.
  Payload(const ModelSpec& model, std::size_t bytes);
  // A copy in memory that the client allocated, as an engine would push from.
  Result<Payload> copy_for(Client& client) const;

  std::uint32_t tokens() const { return tokens_; }
  std::size_t bytes() const { return data_.size_bytes(); }
  LayerPush layer(std::uint32_t l) const;
  // A path of tokens() tokens. Each `number` gives another first token.
  std::vector<TokenId> path(std::uint32_t number) const;

 private:
  ModelSpec model_;
  std::uint32_t tokens_;
  std::shared_ptr<void> memory_;   // owns `data_`; shared with copies of this object
  std::span<std::uint16_t> data_;  // [K, V][num_layers][num_kv_heads, tokens, head_dim]
};

// Keeps every entry; the positions are the scores.
PutOptions keep_everything();

struct PutSeconds {
  double ingest = 0, whole = 0;  // until the last layer() returned; until commit() returned
  SegmentId segment;
};
Result<PutSeconds> put(Client& client, const Model& model, const Payload& payload,
                       std::uint32_t path, const PutOptions& options = keep_everything(),
                       Durability durability = Durability::kMemory);

// Looks up the path; kInternal if it is not stored whole.
Result<LookupMatch> find(Client& client, const Model& model, const Payload& payload,
                         std::uint32_t path);
// As find(), but also gets the path into precisd's memory if it is not there.
Result<LookupMatch> find_hot(Client& client, const Model& model, const Payload& payload,
                             std::uint32_t path);

// Returns once the last layer is checked; the number of bytes.
Result<std::uint64_t> get(Client& client, const LookupMatch& match);

// kInternal if a get of `match` returns a row that differs from the row put at its position.
// check_bytes() also requires all entries of the payload; check_kept() requires all stored entries,
// and that a second get returns the same positions.
Status check_bytes(Client& client, const LookupMatch& match, const Payload& payload);
Status check_kept(Client& client, const LookupMatch& match, const Payload& payload);

}  // namespace precis::bench
