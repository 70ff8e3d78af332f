// Ingest: one layer of a put while its pieces arrive. Pieces are ranges of heads and tokens, in any
// order; each is pulled from the client's memory straight to its place, and no place is written
// twice. A layer that comes whole need not be pulled where it can be read where it is.
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
  // `recipe` says which observations the layer is not complete without. It and `model` outlive it.
  StagedLayer(const ModelSpec& model, const Recipe& recipe, std::uint32_t layer,
              std::uint32_t num_tokens);

  // Checks a piece against the model, the segment and what came before, and claims its place.
  // kInvalidArgument names the field and the limit, and nothing is claimed.
  Status claim(const msg::PushLayer& piece);
  // Of a piece that was claimed and not pulled: as if it had not been.
  void unclaim(const msg::PushLayer& piece);

  // Memory is in two parts, because chunked prefill has its observation queries only at its end:
  // K, V and scores; and queries with their log-sum-exp and statistics.
  enum class Part { kEntries, kObservations };
  bool needs(Part part) const;  // claimed, and without memory yet
  std::size_t size_bytes(Part part) const;
  void give_memory(Part part, std::unique_ptr<Arena::Buffer> buffer);

  // All of the layer, and nothing but K and V.
  bool is_whole(const msg::PushLayer& piece) const;
  // Instead of memory and pull(): reads a claimed piece where it is, until this ends. False where
  // it is not whole, or `from` can't.
  bool read_in_place(const msg::PushLayer& piece, Connection& from);
  // Pulls a claimed piece into the memory given; how many bytes that were.
  Task<Result<std::uint64_t>> pull(msg::PushLayer piece, Connection& from,
                                   const Registration& registration);

  // Every head and token has arrived.
  bool complete() const;
  std::string missing() const;  // what is to come, for people
  kernels::LayerInput input(std::uint32_t begin) const;

 private:
  struct Source;
  std::vector<Source> sources(const msg::PushLayer& piece) const;
  Status check_shape(const msg::PushLayer& piece) const;
  Status check_regions(const msg::PushLayer& piece) const;
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
  std::vector<bool> observed_;          // [head] whose observations were claimed
  std::uint64_t tokens_arrived_ = 0;    // over all heads
  std::uint32_t observed_arrived_ = 0;  // heads
  std::unique_ptr<Arena::Buffer> entries_, observations_;
  // K and V that are read in place.
  struct InPlace {
    std::shared_ptr<const PeerMemory> memory;  // null for none
    std::size_t head_stride_bytes = 0;
  } keys_, values_;
};

}  // namespace precis
