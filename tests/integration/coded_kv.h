#pragma once

#include "precis/entry_form.h"
#include "tests/integration/random_kv.h"

namespace precis::testing {

// The KV as a reader gets it from rows of the encoding.
Kv as_read(Kv kv, Encoding encoding);

}  // namespace precis::testing
