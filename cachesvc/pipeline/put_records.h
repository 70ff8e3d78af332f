// The records of a put's layers between their encoding and the commit: cut back for later layers,
// moved together, and brought into their final form. On compute threads.
#pragma once

#include "cachesvc/pipeline/open_put.h"

namespace precis {

// Cuts earlier layers' records back to what layer `newest` left them. With put.joining held.
Status trim_earlier(OpenPut& put, std::uint32_t newest);

// Moves the encoded records of the put's layers together, so that a later layer finds contiguous
// memory. Unless `all`, a hole that is small beside the records behind it stays: it is not worth
// the copy. Returns whether any records were moved.
bool compact_records(OpenPut& put, bool all);

// Once all layers are encoded: places the seats that depend on all of them, cuts at a quality
// target, and seals the records.
Status place_seats(OpenPut& put, kernels::Backend& backend);

}  // namespace precis
