// Keeps sessions within their totals (session_total.h), in the background: after a change of a
// session, its old turns are trimmed, one at a time. Sessions take turns, and each trim is in the
// turns of its tenant. What is left out is found again at the session's next change. Loop thread
// only.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "cachesvc/base/log.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/trim.h"

namespace precis {

class SessionTotals {
 public:
  // All must outlive this object.
  struct Parts {
    TrimPath& trim;
    const Catalog& catalog;
    Consolidator& consolidator;  // told of trimmed turns, which become alike
    Log& log;
  };
  explicit SessionTotals(Parts parts) : parts_(parts) {}

  // The session got a turn, or another total. `owner`: the tenant, without a connection.
  void changed(const Owner& owner, const std::string& session);
  void stop();
  bool busy() const { return busy_; }

 private:
  struct Waiting {
    Owner owner;
    std::string session;
    std::set<SegmentId> uncut;  // that a trim could not make smaller
  };
  Task<void> work();
  // Trims one turn. False if there is none to trim.
  Task<bool> trim_one(Waiting& waiting);

  const Parts parts_;
  std::deque<Waiting> waiting_;
  bool busy_ = false, stopped_ = false;
};

}  // namespace precis
