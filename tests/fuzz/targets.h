// Every function that reads bytes from outside, in a form that a fuzzer can drive:
// libfuzzer_main.cc with clang, mutation_smoke_test.cc everywhere. Both take the list from here, so
// a new target is one line in the table of its subject.
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
  // Reads `input` and returns whether it was accepted. Aborts if accepted input does not survive
  // being written and read again, or does not match its checksum.
  bool (*run)(Bytes input);
  // Valid initial inputs; run() accepts all of them.
  Inputs (*seeds)(std::uint64_t seed);
};

std::span<const Target> targets();
const Target* find_target(std::string_view name);  // null if there is none

// By subject, one file each.
std::span<const Target> message_targets();    // control messages
std::span<const Target> row_targets();        // rows of the catalog
std::span<const Target> record_targets();     // head records and served layers
std::span<const Target> store_targets();      // payload rows and files
std::span<const Target> catalog_targets();    // opening a catalog
std::span<const Target> backup_targets();     // the file of a backup
std::span<const Target> transport_targets();  // frames and greetings between two processes
std::span<const Target> cluster_targets();    // rows in etcd
std::span<const Target> log_targets();        // objects and answers of S3
std::span<const Target> text_targets();       // text that people write

}  // namespace precis::fuzz
