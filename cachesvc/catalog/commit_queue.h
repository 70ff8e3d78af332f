// A queue of commits that share a sync. Commits arrive while a change is written; the first waiting
// commit then takes all waiting ones, so that they share one write and its sync.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "cachesvc/catalog/catalog.h"

namespace precis {

// A requested commit and its result. The waiting caller owns it.
struct Commit {
  const SegmentRow& row;
  std::span<const Catalog::Layer> layers;
  Durability durability;
  bool makes_room = false;  // a trim
  Status status = {};
  bool done = false;  // guarded by the queue
};

// Thread-safe.
class CommitQueue {
 public:
  // [blocking] Returns true if the caller leads: it must take() all waiting commits, including its
  // own, write them, and call done(). Returns false after another caller has done so.
  bool leads(Commit& commit);
  // For the leader: returns the waiting commits in order of arrival.
  std::vector<Commit*> take();
  // Returns the commits to their callers and lets another caller lead.
  void done(std::span<Commit* const> commits);

  std::size_t waiting() const;  // not yet taken, for tests

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Commit*> waiting_;
  bool led_ = false;
};

}  // namespace precis
