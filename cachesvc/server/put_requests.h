// The puts of one connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

#include "cachesvc/server/caller.h"

namespace precis {

class PutRequests {
 public:
  explicit PutRequests(const Caller& caller);
  ~PutRequests();  // drops the puts in progress

  Task<Answer> on(msg::BeginPut request);
  Task<Answer> on(msg::PushLayer request);
  Task<Answer> on(msg::CommitPut request);
  Task<Answer> on(msg::AbortPut request);
  void abort_all();
  // Aborts the puts that have received nothing for `silence`. Returns their number.
  std::size_t give_up_silent(std::chrono::steady_clock::duration silence);

 private:
  // A put in progress. Its promised memory and its quota are released with it.
  struct WriterPut {
    std::shared_ptr<OpenPut> put;  // shared as PutPath::begin() says
    Quota::Hold counted;
    std::optional<HeldShard> shard;
    std::shared_ptr<const void> keeps;       // keeps the shard, if nodes share a storage
    std::unique_ptr<Trace> trace;            // null if it is not traced
    std::optional<PutTimes::Period> commit;  // the latest one of a traced put
  };
  struct CommittedPut {
    std::uint64_t put;
    SegmentId segment;
    std::optional<HeldShard> shard;
  };
  Status moved_if_gone(const std::optional<HeldShard>& shard, const Status& status) const;
  // Ends the span of a traced put, whose begin may have failed.
  void end_trace(const WriterPut& open, const Status& outcome) const;
  Result<std::shared_ptr<OpenPut>> find(std::uint64_t put) const;

  const Caller& caller_;
  PutPath& path_;
  Quota::Part part_;
  std::uint64_t next_put_ = 1;
  std::unordered_map<std::uint64_t, WriterPut> puts_;
  // The latest puts that ended in these ways.
  std::deque<std::uint64_t> silent_;    // given up
  std::deque<CommittedPut> committed_;  // for repeated commits
};

}  // namespace precis
