#include "cachesvc/pipeline/fair_wait_queue.h"

#include <utility>

namespace precis {

void FairWaitQueue::add(const Owner& owner, Take take, GiveUp give_up, Unwanted unwanted) {
  auto waiter = std::make_unique<Waiter>(Waiter{owner.tenant, std::move(take), std::move(give_up),
                                                std::move(unwanted), loop_.clock().now(), nullptr});
  waiter->deadline = loop_.after(wait_, [this, w = waiter.get()] { leave(w); });
  queue_.push(owner, std::move(waiter));
}

void FairWaitQueue::note(const Waiter& left) {
  waits_.at({left.tenant, {}, {}, {}})
      .observe(std::chrono::duration<double>(loop_.clock().now() - left.since).count());
}

void FairWaitQueue::serve() {
  while (!queue_.empty()) {
    const auto tell = queue_.front()->take();
    if (!tell) return;
    const Waiting served = queue_.pop();
    note(*served);
    tell();
  }
}

void FairWaitQueue::leave(const Waiter* waiter) {
  const auto late = queue_.take_if([&](const Waiting& each) { return each.get() == waiter; });
  if (!late) return;
  note(**late);
  (*late)->give_up();
  serve();  // a smaller request behind it may fit now
}

void FairWaitQueue::drop_unwanted() {
  while (const auto unwanted =
             queue_.take_if([](const Waiting& each) { return each->unwanted(); })) {
    note(**unwanted);
    (*unwanted)->give_up();
    serve();  // may serve and remove other waiters
  }
}

void FairWaitQueue::stop() {
  while (!queue_.empty()) queue_.pop()->give_up();
}

}  // namespace precis
