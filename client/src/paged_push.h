// A push with keys and values in pages, which are copied into the client's own memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/src/put_piece.h"
#include "precis/client.h"
#include "precis/page_mover.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kInvalidArgument naming what in push.pages does not fit the model or a path of `path_tokens`, or
// is inconsistent. check_piece() checks the rest, which pushes of views need, too.
Status check_paged_push(const ModelSpec& model, std::uint32_t path_tokens, const LayerPush& push);

// The bytes of memory that the rows and queries of a checked push need.
std::size_t staged_bytes(const LayerPush& push);

// The push with views of `memory` instead of its pages and queries. Nothing is copied yet.
LayerPush staged_push(const LayerPush& push, Bytes memory);

// Copies into `memory` the rows and queries that `piece` sends. `piece` is the result of
// check_piece() for the staged_push(). Fails with the mover's errors.
Status fill_piece(const LayerPush& push, const PutPiece& piece, PageMover& mover,
                  MutableBytes memory);

}  // namespace precis
