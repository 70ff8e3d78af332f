#include "cachesvc/pipeline/fair_line.h"

#include <algorithm>
#include <utility>

namespace precis {

void FairLine::add(Owner owner, Take take, GiveUp give_up, Unwanted unwanted) {
  auto waiter = std::make_unique<Waiter>(
      Waiter{std::move(take), std::move(give_up), std::move(unwanted), nullptr});
  waiter->deadline = loop_.after(wait_, [this, w = waiter.get()] { leave(w); });
  auto lane = std::ranges::find(lanes_, owner, &Lane::owner);
  if (lane == lanes_.end()) lane = lanes_.insert(lane, Lane{owner, {}});
  lane->waiters.push_back(std::move(waiter));
  ++size_;
}

void FairLine::serve() {
  while (!lanes_.empty()) {
    const auto tell = lanes_.front().waiters.front()->take();
    if (!tell) return;
    Lane lane = std::move(lanes_.front());
    lanes_.pop_front();
    const auto served = std::move(lane.waiters.front());
    lane.waiters.pop_front();
    if (!lane.waiters.empty()) lanes_.push_back(std::move(lane));
    --size_;
    tell();
  }
}

void FairLine::leave(const Waiter* waiter) {
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    const auto it = std::ranges::find(lane->waiters, waiter, [](const auto& w) { return w.get(); });
    if (it == lane->waiters.end()) continue;
    const auto late = std::move(*it);
    lane->waiters.erase(it);
    if (lane->waiters.empty()) lanes_.erase(lane);
    --size_;
    late->give_up();
    return serve();  // one who wants less may have stood behind it
  }
}

void FairLine::drop_unwanted() {
  const auto first = [this]() -> const Waiter* {
    for (const Lane& lane : lanes_) {
      const auto found =
          std::ranges::find_if(lane.waiters, [](const auto& w) { return w->unwanted(); });
      if (found != lane.waiters.end()) return found->get();
    }
    return nullptr;
  };
  while (const Waiter* unwanted = first()) leave(unwanted);  // which may serve others
}

void FairLine::stop() {
  for (Lane& lane : std::exchange(lanes_, {})) {
    for (const auto& waiter : lane.waiters) {
      --size_;
      waiter->give_up();
    }
  }
}

}  // namespace precis
