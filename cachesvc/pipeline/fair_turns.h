// Turns on the loop, fair between tenants and then between connections (fair_queue.h): whoever asks
// for many waits for those who ask for few. Loop thread only.
//
// While several tenants ask, the turns of one take at most a fifth of the loop's time: what they
// cause (answers, completions) takes as long again and more, and a loop that is busy for one tenant
// without pause makes every step of the others' requests wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

class FairTurns {
 public:
  FairTurns(EventLoop& loop, const Clock& clock) : loop_(loop), clock_(clock) {}
  FairTurns(const FairTurns&) = delete;
  FairTurns& operator=(const FairTurns&) = delete;

  // Calls `turn` once, later. Not at all if this goes first.
  void ask(const Owner& owner, std::function<void()> turn);

 private:
  struct Turn {
    Owner owner;
    std::function<void()> call;
  };
  using Queue = FairQueue<Turn>;
  struct Tenant {
    std::uint64_t paused_until_ns = 0;
    std::deque<Turn> paused;  // the first is queued when the timer fires
    std::unique_ptr<EventLoop::Timer> timer;
  };
  struct Asked {
    std::string tenant;
    std::uint64_t at_ns;
  };
  bool others_ask(const std::string& tenant, std::uint64_t now_ns) const;
  void resume_later(Tenant& tenant, std::uint64_t now_ns);
  void queue(Turn turn, double cost);
  void post();
  void serve();

  EventLoop& loop_;
  const Clock& clock_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();  // shared with what is posted
  std::map<std::string, Tenant> tenants_;
  std::optional<Asked> last_, last_of_another_;  // of another tenant than `last_`
  bool posted_ = false;
};

}  // namespace precis
