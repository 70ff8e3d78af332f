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

// What went wrong first.
class Failure {
 public:
  void report(const std::string& what);
  std::string what() const;  // empty: nothing
  explicit operator bool() const { return !what().empty(); }

 private:
  mutable std::mutex mutex_;
  std::string what_;
};

// What the workers of one run share.
struct Work {
  std::string address;
  std::span<Slot> slots;
  Counts& counts;
  Failure& failure;
  std::latch& connected;  // counted down by each worker, connected or not
};

// Reads the path and compares it with what is stored; kCorruption says what is otherwise.
Status check_slot(Client& client, const Model& model, const Slot& slot, const Stored& stored);
// What is stored of the path, as a lookup and its segments say.
Result<Stored> look(Client& client, const Model& model, const Slot& slot);

// Changes the slots `mine` until the service does not answer any more.
void change_slots(const Work& work, std::span<Slot> mine, std::uint32_t seed);
// Reads any slot, at any budget: what comes must be a cut of what was pushed.
void read_slots(const Work& work, std::uint32_t seed);

}  // namespace precis::torture
