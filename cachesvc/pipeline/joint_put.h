// The shared state of the writers of one put. A put has one writer, or several that each write some
// of its heads or tokens: ranks of one engine that run the same program, each with its own
// connection. The put is committed when all writers have asked for it. It ends for all when one
// gives it up or leaves. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "precis/messages.h"

namespace precis {

class JointPut {
 public:
  JointPut(EventLoop& loop, std::uint32_t writers) : loop_(loop), writers_(writers) {}

  std::uint32_t writers() const { return writers_; }
  bool is_full() const { return joined_ == writers_; }

  // Adds a writer. Returns the outcome of the first writer's begin, once that is known.
  Task<Status> join();
  void begun(const Status& status);

  // A writer asks for the commit. The last writer to ask carries it out, at the strongest
  // durability that was asked for. All writers get the outcome, also if they ask again during the
  // commit or after it. After a failed commit all writers may ask again.
  using Outcome = Result<msg::SegmentInfo>;
  using Writer = const void*;  // identifies the writer in all its requests
  Task<Outcome> agree(Writer writer, Durability durability,
                      std::function<Task<Outcome>(Durability)> carry_out);
  // Ends the waits of all writers with the error `why`.
  void give_up(const Status& why);

 private:
  using Waiting = std::vector<std::function<void(bool)>>;
  struct Round {
    std::set<Writer> agreed;
    Durability durability = Durability::kMemory;
    std::optional<Outcome> outcome;
    Waiting waiting;
  };
  void wake(Waiting& waiting);
  void end_round(Outcome outcome);

  EventLoop& loop_;
  const std::uint32_t writers_;
  std::uint32_t joined_ = 1;
  std::optional<Status> begun_;
  Waiting joining_;
  std::optional<Outcome> committed_;
  std::shared_ptr<Round> round_ = std::make_shared<Round>();  // shared with the waiting writers
};

}  // namespace precis
