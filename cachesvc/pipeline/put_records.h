// Changes the records of a put's layers between encoding and commit: trims them for later layers,
// and finishes them. Runs on compute threads.
#pragma once

#include "cachesvc/pipeline/open_put.h"

namespace precis {

// Trims the records of the other layers by the seats that layer `newest` took from them (the
// cascade). The caller holds put.joining.
Status trim_earlier(OpenPut& put, std::uint32_t newest);

// Once all layers are encoded: places the seats that depend on all of them, and seals the
// records.
Status place_seats(OpenPut& put, kernels::Backend& backend);

}  // namespace precis
