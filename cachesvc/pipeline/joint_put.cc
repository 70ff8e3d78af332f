#include "cachesvc/pipeline/joint_put.h"

#include <algorithm>
#include <utility>

namespace precis {

// Resumes the waiting coroutines in later turns of the loop, because one of them may destroy this
// object's caller.
void JointPut::wake(Waiting& waiting) {
  for (auto& done : std::exchange(waiting, {}))
    loop_.post([done = std::move(done)] { done(true); });
}

Task<Status> JointPut::join() {
  ++joined_;
  if (!begun_) {
    co_await completion<bool>([&](auto done) { joining_.push_back(std::move(done)); });
  }
  co_return *begun_;
}

void JointPut::begun(const Status& status) {
  begun_ = status;
  wake(joining_);
}

Task<JointPut::Outcome> JointPut::agree(Writer writer, Durability durability,
                                        std::function<Task<Outcome>(Durability)> carry_out) {
  if (committed_) co_return *committed_;
  const std::shared_ptr<Round> round = round_;
  round->durability = std::max(round->durability, durability);
  const bool asks_again = !round->agreed.insert(writer).second;
  if (asks_again || round->agreed.size() < writers_) {
    co_await completion<bool>([&](auto done) { round->waiting.push_back(std::move(done)); });
    co_return *round->outcome;
  }
  Outcome outcome = co_await carry_out(round->durability);
  end_round(outcome);
  co_return outcome;
}

void JointPut::give_up(const Status& why) { end_round(why); }

void JointPut::end_round(Outcome outcome) {
  const std::shared_ptr<Round> ended = std::exchange(round_, std::make_shared<Round>());
  if (outcome.ok()) committed_ = outcome;
  ended->outcome = std::move(outcome);
  wake(ended->waiting);
}

}  // namespace precis
