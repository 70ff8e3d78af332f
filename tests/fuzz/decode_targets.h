// Everything that reads bytes from outside, as functions a fuzzer can drive: libfuzzer_main.cc with
// clang, mutation_smoke_test.cc everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "precis/view.h"

namespace precis::fuzz {

struct Target {
  std::string_view name;
  // Decodes `input`; aborts if what was read does not survive being written and read again.
  void (*run)(Bytes input);
  // Valid inputs to start from.
  std::vector<std::vector<std::byte>> (*seeds)(std::uint64_t seed);
};

std::span<const Target> targets();
const Target* find_target(std::string_view name);  // null if there is none

}  // namespace precis::fuzz
