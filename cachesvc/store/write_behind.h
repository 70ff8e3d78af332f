// Changes that are acknowledged in memory while their payload is on its way to a file. Each is
// applied behind its payload, on the writer's thread, and read from memory until then. They may
// stand on one another: so behind one that failed none is applied, and who needs them stored has
// them tried again, in their order. They promise nothing beyond the process: where more comes than
// may wait, the oldest give way (write_behind_room.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cachesvc/store/backlog.h"
#include "cachesvc/store/extent_index.h"
#include "cachesvc/store/payload_writer.h"
#include "cachesvc/store/store.h"

namespace precis {

// Thread-safe.
class WriteBehind {
 public:
  using Change = WaitingChange;

  // All of these outlive it, but `writer`, which ends before it does: it runs what is left.
  // `apply` stores a change whose payload is written; `failed` is called where one was not.
  // At most `bytes_max` of payload are left for later, and as much of rows.
  WriteBehind(ExtentIndex& index, PayloadWriter& writer, std::uint64_t bytes_max,
              std::function<Status(const Change&)> apply, std::function<void()> failed);

  // Whether the change, of staged payload, is left for later: shared with the writer's thread then.
  // If too much waits, the oldest changes whose payload is not written give way, with those that
  // rest on them. False where there is nothing to wait for, or not enough gives way, or something
  // failed: then the disk's state is for who writes to know. Nor are deletes left for later, which
  // reading would miss.
  bool leave(const std::shared_ptr<Change>& change);

  // While it is held nothing is left for later. Not held where something waits.
  std::shared_lock<std::shared_mutex> while_none_waits();
  // [blocking] Until all that was left is applied, as `status` says; what failed again stays, and
  // is read from memory. While it is held nothing is left for later.
  struct CaughtUp {
    std::unique_lock<std::shared_mutex> held;
    Status status;
  };
  CaughtUp catch_up();
  // [blocking] Where rows of the table wait to be written.
  void catch_up_with(Table table);
  // What failed before and is changed anew is not written any more. While caught up.
  void supersede(const Change& newer);
  // Names of changes that gave way since it was last asked.
  std::vector<std::string> take_dropped();

 private:
  void settle_later(const std::shared_ptr<Change>& change);
  void settle(const std::shared_ptr<Change>& change);
  // These with mutex_ held.
  bool make_room_for(const Change& change);
  void keep_what_is_replaced(Change& change);
  void drop(const std::shared_ptr<Change>& change);

  ExtentIndex& index_;
  PayloadWriter& writer_;
  const std::uint64_t bytes_max_;
  const std::function<Status(const Change&)> apply_;
  const std::function<void()> failed_;
  // Held alone by who needs all changes that were left for later behind them; before mutex_.
  std::shared_mutex order_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Backlog backlog_;          // left for later
  std::uint64_t bytes_ = 0;  // of their payload
  std::vector<std::string> dropped_;
};

}  // namespace precis
