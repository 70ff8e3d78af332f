// The records of a put's layers between their encoding and the commit: cut back for layers that
// come later, moved together, and brought into their last form. On compute threads.
#pragma once

#include "cachesvc/pipeline/put_state.h"

namespace precis {

// The cascade: what layer `newest` took from those before it, they give back. With put.joining
// held.
Status trim_earlier(PutPath::Put& put, std::uint32_t newest);

// Leaves no holes among the layers' records, neither where they were cut back nor where a layer lay
// as it was pushed: one to come needs its room in one piece. Unless `all`, holes that are small
// beside the records behind them stay: they are not worth the copy.
bool close_ranks(PutPath::Put& put, bool all);

// Once all layers are encoded: seats that waited for the last one, and the cut of a quality target.
Status place_seats(PutPath::Put& put, kernels::Backend& backend);

}  // namespace precis
