// How tests put and connect.
#pragma once

#include "precis/client.h"

namespace precis::testing {

// Nearly everything: what comes back is compared row by row.
inline PutOptions keep_most() {
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio_ppm(900'000);
  return options;
}

// Waits for a service that is busy or restarted for as long as a slow machine may take.
inline ConnectOptions patient() {
  ConnectOptions options;
  options.timeout_ms = 120'000;
  return options;
}

// For a service that is about to die: it answers, or it does not.
inline ConnectOptions only_once() {
  ConnectOptions options;
  options.retry = false;
  return options;
}

}  // namespace precis::testing
