// Options of the tests' puts and connections.
#pragma once

#include "precis/client.h"

namespace precis::testing {

// Keeps nearly everything: results are compared row by row.
inline PutOptions keep_most() {
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio_ppm(900'000);
  return options;
}

// Waits for a service that is busy or restarted, long enough for a slow machine.
inline ConnectOptions patient() {
  ConnectOptions options;
  options.timeout_ms = 120'000;
  return options;
}

// For a service that is about to die: no retries.
inline ConnectOptions only_once() {
  ConnectOptions options;
  options.retry = false;
  return options;
}

}  // namespace precis::testing
