// Clients that put, trim, remove and read until the service is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <latch>
#include <mutex>
#include <random>
#include <span>
#include <string>

#include "tests/torture/slot.h"

namespace precis::torture {

struct Counts {
  std::atomic<std::uint64_t> puts{0}, trims{0}, removes{0}, reads{0}, unanswered{0}, checks{0};
};

// Keeps the first failure.
class Failure {
 public:
  void report(const std::string& what);
  std::string what() const;  // empty if there is none
  explicit operator bool() const { return !what().empty(); }

 private:
  mutable std::mutex mutex_;
  std::string what_;
};

// Shared by the workers of one run.
struct Work {
  std::string address;
  std::span<Slot> slots;
  Counts& counts;
  Failure& failure;
  std::latch& connected;  // counted down by each worker, even if it could not connect
};

// Reads the path and compares it with `stored`; kCorruption describes the difference.
Status check_slot(Client& client, const Model& model, const Slot& slot, const Stored& stored);
// The stored state of the path according to a lookup.
Result<Stored> look(Client& client, const Model& model, const Slot& slot);

// Changes the slots `mine` until the service no longer answers.
void change_slots(const Work& work, std::span<Slot> mine, std::uint32_t seed);
// Reads random slots at random budgets until the service no longer answers. Each answer must be a
// cut of the pushed rows.
void read_slots(const Work& work, std::uint32_t seed);

}  // namespace precis::torture
