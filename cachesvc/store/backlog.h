// Changes that were acknowledged in memory and wait to be stored, in their order, found by name and
// by what they rest on: however many wait, one more costs no look at all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/extent_index.h"
#include "cachesvc/store/store.h"

namespace precis {

// A batch taken apart.
struct WaitingChange {
  StoreBatch rows;
  // The bytes that `rows` borrow once the batch is gone; a deque: what stands in it does not move.
  std::deque<std::vector<std::byte>> row_values;
  PayloadBatch payload;
  // These are for a change that was left for later, and guarded by the mutex of its Backlog.
  std::uint64_t place = 0;      // in the backlog
  std::uint64_t row_bytes = 0;  // that it takes beside its payload
  Status failed;
  bool settling = false;  // the writer's thread has it
  bool kept = false;      // it changes what is stored or waits already, and so can't give way
  bool dropped = false;   // it gave way
};

// Not thread-safe.
class Backlog {
 public:
  using ChangePtr = std::shared_ptr<WaitingChange>;
  using InOrder = std::map<std::uint64_t, ChangePtr>;

  bool empty() const { return all_.empty(); }
  const InOrder& all() const { return all_; }
  std::vector<ChangePtr> copy() const;
  // Those that have payload and are not kept: all that can give way by themselves.
  const InOrder& droppable() const { return droppable_; }
  std::uint64_t row_bytes() const { return row_bytes_; }

  void add(const ChangePtr& change);
  // Its name and row_bytes are as they were when it was added.
  void remove(const ChangePtr& change);
  void keep(WaitingChange& change);
  void set_failed(WaitingChange& change, Status status);
  // Why the first one failed of those before `end`, or of all.
  Status first_failure(const WaitingChange* end = nullptr) const;

  // `change` and all that came after it and mean nothing without it.
  std::vector<ChangePtr> resting_on(const ChangePtr& change) const;
  // Those without which what rests on `name` means nothing.
  std::set<const WaitingChange*> needed_for(const std::string& name) const;

 private:
  using ByName = std::multimap<std::string, ChangePtr>;
  static void erase(ByName& names, const std::string& name, const ChangePtr& change);

  std::uint64_t next_ = 0;
  InOrder all_, droppable_;
  std::map<std::uint64_t, const WaitingChange*> failed_;
  ByName by_name_, by_base_;  // of those that have a name; of those that rest on one
  std::uint64_t row_bytes_ = 0;
};

}  // namespace precis
