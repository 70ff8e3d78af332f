// What the writers of one put share: one, or several that write its heads or its tokens, ranks of
// one engine that run the same program on connections of their own. The put is committed when all
// have asked for it, and ends for all when one gives it up or leaves. Loop thread only.
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

  // A further writer's; done once the first one's put has begun, or why it has not.
  Task<Status> join();
  void begun(const Status& status);

  // A writer asks for the commit; the last one to ask has it carried out, at the strongest
  // durability that was asked for by then. The outcome is everybody's, also of who asks again:
  // meanwhile, or once it is committed. After one that failed all may ask anew.
  using Outcome = Result<msg::SegmentInfo>;
  using Writer = const void*;  // one and the same whenever it asks
  Task<Outcome> agree(Writer writer, Durability durability,
                      std::function<Task<Outcome>(Durability)> carry_out);
  // Who waits for others waits no longer: why.
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
  std::shared_ptr<Round> round_ = std::make_shared<Round>();  // shared with who waits for its end
};

}  // namespace precis
