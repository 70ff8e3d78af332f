// A push whose keys and values stand in pages, on its way into memory of the client's own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/src/put_piece.h"
#include "precis/client.h"
#include "precis/page_mover.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kInvalidArgument naming what of push.pages does not fit the model, a path of `path_tokens`, or
// itself. What concerns rows in pages and views alike is left to check_piece().
Status check_paged_push(const ModelSpec& model, std::uint32_t path_tokens, const LayerPush& push);

// What rows and queries of a checked push take.
std::size_t staged_bytes(const LayerPush& push);

// The push with views of `memory` in place of its pages and its queries. Nothing is copied yet.
LayerPush staged_push(const LayerPush& push, Bytes memory);

// Copies the rows and queries that `piece` sends of its staged_push() into `memory`. The mover's
// errors.
Status fill_piece(const LayerPush& push, const PutPiece& piece, PageMover& mover,
                  MutableBytes memory);

}  // namespace precis
