// Turns on the loop, fair between tenants and then between connections (fair_queue.h): a tenant
// that asks for many turns waits for those that ask for few. Loop thread only.
//
// While several tenants ask, the turns of one tenant take at most a fifth of the loop's time. The
// work that they cause (answers, completions) takes at least as long again, and a loop that is
// continuously busy for one tenant delays every step of the others' requests.
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

  // Calls `turn` once, later; never if this object is destroyed first.
  void ask(const Owner& owner, std::function<void()> turn);

 private:
  struct Turn {
    Owner owner;
    std::function<void()> call;
  };
  using Queue = FairQueue<Turn>;
  struct Tenant {
    std::uint64_t paused_until_ns = 0;
    std::deque<Turn> paused;  // the timer queues the first one
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
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();  // shared with posted calls
  std::map<std::string, Tenant> tenants_;
  std::optional<Asked> last_, last_of_another_;  // the latest, and the latest of another tenant
  bool posted_ = false;
};

}  // namespace precis
