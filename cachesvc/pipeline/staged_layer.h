// Ingest: one layer of a put while its pieces arrive. A piece is a range of heads and of tokens;
// pieces come in any order. Each is pulled from the client's memory straight into its place, and no
// place is written twice. A layer pushed as one piece can be read in place instead, if the
// connection allows that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/arena.h"
#include "cachesvc/pipeline/in_flight.h"
#include "cachesvc/pipeline/token_ranges.h"
#include "cachesvc/transport/transport.h"
#include "precis/kernels.h"
#include "precis/messages.h"
#include "precis/types.h"

namespace precis {

class StagedLayer {
 public:
  // `recipe` says which observations a complete layer has. `recipe` and `model` must outlive it.
  StagedLayer(const ModelSpec& model, const Recipe& recipe, std::uint32_t layer,
              std::uint32_t num_tokens);

  // Checks a piece against the model, the segment and the earlier pieces, and claims its place. On
  // an error nothing is claimed; kInvalidArgument names the field and the limit.
  Status claim(const msg::PushLayer& piece);
  // Undoes the claim of a piece that was not pulled.
  void unclaim(const msg::PushLayer& piece);

  // Memory comes in two parts, because chunked prefill has its observation queries only at its end.
  // The entries are K, V and scores; the observations are queries, their log-sum-exp and
  // statistics.
  enum class Part { kEntries, kObservations };
  bool needs(Part part) const;  // whether it was claimed and has no memory yet
  std::size_t size_bytes(Part part) const;
  // The bytes of the observations that the recipe reads. A client may push more queries.
  std::size_t read_observation_bytes() const;
  void give_memory(Part part, std::unique_ptr<Arena::Buffer> buffer);

  // Whether the piece is the whole layer, with K and V only.
  bool is_whole(const msg::PushLayer& piece) const;
  // In place of memory and pull(): reads a claimed piece in the client's memory, until this object
  // is destroyed. Returns false if the piece is not whole or `from` cannot be read in place.
  bool read_in_place(const msg::PushLayer& piece, Connection& from);
  // Pulls a claimed piece into the memory given. Returns the number of bytes pulled.
  Task<Result<std::uint64_t>> pull(msg::PushLayer piece, Connection& from,
                                   const Registration& registration);

  // Whether every head and token has arrived, with the observations.
  bool complete() const;
  std::string missing() const;  // what has not arrived, for people
  kernels::LayerInput input(std::uint32_t begin) const;

 private:
  struct Source;
  std::vector<Source> sources(const msg::PushLayer& piece) const;
  Status check_shape(const msg::PushLayer& piece) const;
  std::uint32_t group() const { return model_.num_q_heads / model_.num_kv_heads; }
  std::size_t row_bytes() const { return model_.head_dim * dtype_size_bytes(model_.dtype); }

  std::size_t heads_bytes() const;    // K, or V, padded
  std::size_t queries_bytes() const;  // padded
  std::size_t lse_bytes() const;      // padded
  std::size_t mean_bytes() const;     // padded

  const ModelSpec& model_;  // the put's
  const Recipe& recipe_;    // the put's
  std::uint32_t layer_;
  std::uint32_t num_tokens_;
  bool begun_ = false;
  std::uint32_t num_queries_ = 0;
  bool has_lse_ = false, has_scores_ = false, has_stats_ = false;
  std::vector<TokenRanges> claimed_;    // [head]
  std::vector<bool> observed_;          // [head] whether its observations were claimed
  std::uint64_t tokens_arrived_ = 0;    // over all heads
  std::uint32_t observed_arrived_ = 0;  // heads
  std::unique_ptr<Arena::Buffer> entries_, observations_;
  // K and V that are read in the client's memory.
  struct InPlace {
    std::shared_ptr<const PeerMemory> memory;  // null if not read in place
    std::size_t head_stride_bytes = 0;
  } keys_, values_;
};

}  // namespace precis
