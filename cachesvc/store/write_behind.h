// Deferred changes: acknowledged in memory before their payload is written. The payload store's
// thread applies each change after its payload; until then the change is read from memory. Changes
// may depend on earlier ones, so none is applied after a failed one. catch_up() tries all again in
// order. Deferred changes do not survive the process. If more wait than allowed, the oldest are
// dropped, together with their dependents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cachesvc/store/backlog.h"
#include "cachesvc/store/payload_index.h"
#include "cachesvc/store/payload_store.h"

namespace precis {

// Thread-safe.
class WriteBehind {
 public:
  using Change = WaitingChange;

  // All arguments outlive this object, and its owner calls catch_up() last. `apply` stores a change
  // whose payload is written. `failed` is called if payload or rows could not be written. At most
  // `bytes_max` of payload are deferred, and the same amount of rows.
  WriteBehind(PayloadIndex& index, PayloadStore& payload, std::uint64_t bytes_max,
              std::function<Status(const Change&)> apply, std::function<void()> failed);

  // Defers a change whose payload is all staged. Returns true if deferred; the change is then
  // shared with the payload store's thread. If too much waits, drops the oldest changes with
  // unwritten payload, together with their dependents. False if there is nothing to wait for, if
  // not enough can be dropped, or if something failed: the caller then writes the change itself and
  // gets the disk's errors. Also false for changes with deletes: reads from memory do not see
  // deletes.
  bool leave(const std::shared_ptr<Change>& change);

  // While this lock is held, no change is deferred. Returns an unlocked lock if a change is
  // deferred.
  std::shared_lock<std::shared_mutex> while_none_waits();
  // [blocking] Waits until all deferred changes are applied; `status` is the first failure. Changes
  // that fail again stay in memory and are read from there. While `held` is locked, no change is
  // deferred.
  struct CaughtUp {
    std::unique_lock<std::shared_mutex> held;
    Status status;
  };
  CaughtUp catch_up();
  // [blocking] Calls catch_up() if rows of the table wait to be written.
  void catch_up_with(Table table);
  // Removes rows and values that `newer` replaces from failed changes. Call after catch_up().
  void supersede(const Change& newer);
  // Names of the changes dropped since the last call.
  std::vector<std::string> take_dropped();

 private:
  void settle_later(const std::shared_ptr<Change>& change);
  void settle(const std::shared_ptr<Change>& change);
  // Callers hold mutex_ for the functions below.
  bool make_room_for(const Change& change);
  void keep_what_is_replaced(Change& change);
  void drop(const std::shared_ptr<Change>& change);

  PayloadIndex& index_;
  PayloadStore& payload_;
  const std::uint64_t bytes_max_;
  const std::function<Status(const Change&)> apply_;
  const std::function<void()> failed_;
  // Locked exclusively to defer a change or to catch up, shared to keep changes from being
  // deferred. Locked before mutex_.
  std::shared_mutex order_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Backlog backlog_;          // deferred changes
  std::uint64_t bytes_ = 0;  // payload bytes of the deferred changes
  std::vector<std::string> dropped_;
};

}  // namespace precis
