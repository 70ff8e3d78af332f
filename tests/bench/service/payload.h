// Random K and V, put and got back as an engine would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "precis/client.h"

namespace precis::bench {

// Layers of Llama-3.1-8B, as many of them as asked for.
ModelSpec bench_model(std::uint32_t num_layers);

// K and V of one put: as many tokens as the bytes ask for, at least one. Finite bf16 whatever the
// bits. Every layer has another part of it.
class Payload {
 public:
  // In memory that no client knows.
  Payload(const ModelSpec& model, std::size_t bytes);
  // The same in memory of the client's, as an engine would push from.
  Result<Payload> copy_for(Client& client) const;

  std::uint32_t tokens() const { return tokens_; }
  std::size_t bytes() const { return data_.size_bytes(); }
  LayerPush layer(std::uint32_t l) const;
  // A path of so many tokens that begins with another one than any other `number`'s.
  std::vector<TokenId> path(std::uint32_t number) const;

 private:
  ModelSpec model_;
  std::uint32_t tokens_;
  std::shared_ptr<void> memory_;   // of `data_`; shared with the copies of this
  std::span<std::uint16_t> data_;  // [K, V][num_layers][num_kv_heads, tokens, head_dim]
};

// What is put as it is: everything is kept, and positions are the scores.
PutOptions keep_everything();

struct PutSeconds {
  double ingest = 0, whole = 0;  // until the last layer() returned, and commit()
  SegmentId segment;
};
Result<PutSeconds> put(Client& client, const Model& model, const Payload& payload,
                       std::uint32_t path, const PutOptions& options = keep_everything(),
                       Durability durability = Durability::kMemory);

// What is stored of the path; kInternal where that is not all of it.
Result<LookupMatch> find(Client& client, const Model& model, const Payload& payload,
                         std::uint32_t path);
// The same, brought into precisd's memory where it is not.
Result<LookupMatch> find_hot(Client& client, const Model& model, const Payload& payload,
                             std::uint32_t path);

// Until the last layer is checked; its bytes.
Result<std::uint64_t> get(Client& client, const LookupMatch& match);

// kInternal if a get of `match` gives other rows than were put at the positions it tells, or, of
// one that holds everything, not all of them. Of one that does not, a second get must give the
// same.
Status check_bytes(Client& client, const LookupMatch& match, const Payload& payload);
Status check_kept(Client& client, const LookupMatch& match, const Payload& payload);

}  // namespace precis::bench
