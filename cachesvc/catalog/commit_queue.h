// Commits that wait for a sync. While one change is written others come; the first of those that
// wait then takes all of them along, so that they share one write and its sync.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "cachesvc/catalog/catalog.h"

namespace precis {

// A commit as it was asked for, and what came of it. Lives as long as who asked waits.
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
  // [blocking] True: the caller is to take() all that wait, its own among them, write them, and say
  // that they are done(). False once another has done that for it.
  bool leads(Commit& commit);
  // For the one that leads: what waits by now, in the order in which it came.
  std::vector<Commit*> take();
  // The commits are their callers' again, and another may lead.
  void done(std::span<Commit* const> commits);

  std::size_t waiting() const;  // and not taken, for tests

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Commit*> waiting_;
  bool led_ = false;
};

}  // namespace precis
