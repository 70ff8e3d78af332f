// Keeps sessions within their totals (session_total.h), in the background: after a change of a
// session, its old turns are trimmed. One session is done before the next begins, and tenants take
// turns. While puts or gets wait for memory or the disk, nothing is trimmed, and the session is
// tried again a second later. Loop thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/score_curve.h"
#include "cachesvc/pipeline/trim.h"

namespace precis {

class SessionTotals {
 public:
  // All must outlive this object.
  struct Parts {
    EventLoop& loop;
    FairExecutor& storage;  // choices, which look at all turns of a session
    TrimPath& trim;
    const Catalog& catalog;
    Consolidator& consolidator;  // is told of trimmed turns
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
  };
  // A segment's scores when they were read, most often before any trim. A trim keeps about the
  // highest ones.
  struct Known {
    SegmentId parent{};
    std::uint32_t begin = 0, end = 0;
    ScoreCurve curve;
    std::uint64_t number = 0;  // how many were read before
  };
  struct Trim {
    SegmentId turn, next;
    Budget budget;
  };
  struct Plan {
    std::vector<Catalog::Row> unknown;  // their scores have to be read first
    std::vector<Trim> trims;
    std::optional<Budget> total;
  };
  Task<void> work();
  Waiting take_next();
  Task<void> hold(const Waiting& session);
  Plan plan(const Waiting& session);
  // False if the session has to wait for its next change.
  Task<bool> carry_out(const Waiting& session, Plan plan);
  bool may_go_on(const Waiting& session, const Status& done);
  bool others_wait(const Waiting& session);
  void later(const Waiting& session);
  // Null if its scores have to be read.
  const ScoreCurve* curve_of(const SegmentRow& row);
  bool take_former(const SegmentRow& row, Known& known);
  void remember(const SegmentRow& row, ScoreCurve curve);

  const Parts parts_;
  std::deque<Waiting> waiting_, later_;
  std::unique_ptr<EventLoop::Timer> again_;
  std::string last_tenant_;
  std::map<SegmentId, Known> known_;
  std::uint64_t curves_read_ = 0;
  bool busy_ = false, stopped_ = false;
};

}  // namespace precis
