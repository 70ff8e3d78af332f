// Everything that reads bytes from outside, as functions a fuzzer can drive: libfuzzer_main.cc with
// clang, mutation_smoke_test.cc everywhere. What runs them takes the list from here, so a target is
// one line in the table of its subject.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "precis/view.h"

namespace precis::fuzz {

using Inputs = std::vector<std::vector<std::byte>>;

struct Target {
  std::string_view name;
  // Reads `input` and says whether it was accepted; aborts if what was accepted does not survive
  // being written and read again, or is not what its checksum says.
  bool (*run)(Bytes input);
  // Valid inputs to start from: all are accepted.
  Inputs (*seeds)(std::uint64_t seed);
};

std::span<const Target> targets();
const Target* find_target(std::string_view name);  // null if there is none

// By subject, a file each.
std::span<const Target> message_targets();    // control messages
std::span<const Target> row_targets();        // rows of the catalog
std::span<const Target> record_targets();     // head records, and layers as they are served
std::span<const Target> store_targets();      // payload rows and files
std::span<const Target> catalog_targets();    // a catalog as it opens
std::span<const Target> transport_targets();  // what two processes say to each other
std::span<const Target> text_targets();       // what people write

}  // namespace precis::fuzz
