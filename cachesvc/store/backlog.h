// Changes that were acknowledged in memory and wait to be stored, in order. They are indexed by
// their name and by the name that they depend on, so that adding a change does not scan all of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/payload_index.h"
#include "cachesvc/store/row_store.h"

namespace precis {

// A batch separated into rows and payload.
struct WaitingChange {
  RowBatch rows;
  // Copies of the bytes that `rows` refers to, for use after the caller's batch is gone. A deque,
  // because its elements do not move.
  std::deque<std::vector<std::byte>> row_values;
  PayloadBatch payload;
  std::string name, rests_on;  // see StoreBatch
  // The fields below are for deferred changes; the mutex of their Backlog's owner guards them.
  std::uint64_t place = 0;      // its key in Backlog::all()
  std::uint64_t row_bytes = 0;  // memory that it takes in addition to its payload
  Status failed;
  bool settling = false;  // the payload store's thread is applying it
  bool kept = false;      // must not be dropped: it replaces payload, or its payload is replaced
  bool dropped = false;   // it was dropped
};

// Not thread-safe.
class Backlog {
 public:
  using ChangePtr = std::shared_ptr<WaitingChange>;
  using InOrder = std::map<std::uint64_t, ChangePtr>;

  bool empty() const { return all_.empty(); }
  const InOrder& all() const { return all_; }
  std::vector<ChangePtr> copy() const;
  // Changes that have payload and are not kept, so they can be dropped.
  const InOrder& droppable() const { return droppable_; }
  std::uint64_t row_bytes() const { return row_bytes_; }

  void add(const ChangePtr& change);
  // `change` must have the name and row_bytes that it had when it was added.
  void remove(const ChangePtr& change);
  void keep(WaitingChange& change);
  void set_failed(WaitingChange& change, Status status);
  // The failure of the first failed change before `end`, or of all changes if `end` is null. OK if
  // there is none.
  Status first_failure(const WaitingChange* end = nullptr) const;

  // `change` and all later changes that depend on it, directly or not.
  std::vector<ChangePtr> resting_on(const ChangePtr& change) const;
  // All changes that a change resting on `name` depends on, directly or not.
  std::set<const WaitingChange*> needed_for(const std::string& name) const;

 private:
  using ByName = std::multimap<std::string, ChangePtr>;
  static void erase(ByName& names, const std::string& name, const ChangePtr& change);

  std::uint64_t next_ = 0;
  InOrder all_, droppable_;
  std::map<std::uint64_t, const WaitingChange*> failed_;
  ByName by_name_, by_base_;  // changes by their name; by the name they rest on
  std::uint64_t row_bytes_ = 0;
};

}  // namespace precis
