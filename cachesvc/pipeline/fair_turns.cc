#include "cachesvc/pipeline/fair_turns.h"

#include <chrono>
#include <utility>

namespace precis {
namespace {

// Then the rest of the loop has its turn: answers are sent, and others are heard.
constexpr std::chrono::milliseconds kServeTime{1};

}  // namespace

void FairTurns::ask(const Owner& owner, std::function<void()> turn) {
  queue_->push(owner, std::move(turn));
  if (!std::exchange(posted_, true)) post();
}

void FairTurns::post() {
  loop_.post([this, alive = std::weak_ptr<Queue>(queue_)] {
    if (!alive.expired()) serve();
  });
}

void FairTurns::serve() {
  const auto enough = std::chrono::steady_clock::now() + kServeTime;
  while (!queue_->empty() && std::chrono::steady_clock::now() < enough) queue_->pop()();
  posted_ = !queue_->empty();
  if (posted_) post();
}

}  // namespace precis
