// One piece of a layer. It is checked against the model and the put before it is sent, so that the
// caller gets errors at once, in terms of its own arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/src/staging_pool.h"
#include "precis/client.h"

namespace precis {

// The heads and new tokens that a piece covers, each as [begin, end).
struct PieceExtent {
  std::uint32_t head_begin = 0, head_end = 0, token_begin = 0, token_end = 0;
  bool overlaps(const PieceExtent& other) const {
    return head_begin < other.head_end && other.head_begin < head_end &&
           token_begin < other.token_end && other.token_begin < token_end;
  }
};

struct PutPiece {
  LayerPush push;                               // cut to the put's new tokens
  std::vector<std::byte> packed_queries;        // if the pushed queries are not contiguous
  std::vector<float> packed_scores;             // if scores of the whole path were pushed
  std::unique_ptr<StagingPool::Buffer> staged;  // if rows came in pages

  PieceExtent extent() const {
    return {push.head_begin, push.head_begin + push.keys.num_heads, push.token_begin,
            push.token_begin + push.keys.num_tokens};
  }
};

// Checks a push and cuts it to the put's new tokens. kInvalidArgument names the value and its
// limit.
Result<PutPiece> check_piece(const ModelSpec& model, const Recipe& recipe,
                             const msg::PutBegun& begun, std::uint32_t layer,
                             const LayerPush& push);

}  // namespace precis
