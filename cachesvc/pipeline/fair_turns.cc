#include "cachesvc/pipeline/fair_turns.h"

#include <chrono>
#include <utility>

namespace precis {
namespace {

// After this time the loop does other work: it sends answers and receives messages.
constexpr std::uint64_t kServeNs = 50'000;
// While other tenants ask, a pause of this many times a turn's length follows the turn.
constexpr std::uint64_t kPausePerTurn = 4;
// A tenant counts as asking for this long after it last asked.
constexpr std::uint64_t kAskingNs = 100'000'000;

}  // namespace

void FairTurns::ask(const Owner& owner, std::function<void()> turn) {
  if (!last_ || last_->tenant != owner.tenant) {
    last_of_another_ = std::exchange(last_, Asked{owner.tenant, 0});
  }
  last_->at_ns = clock_.monotonic_ns();
  queue({owner, std::move(turn)}, 1);
}

bool FairTurns::others_ask(const std::string& tenant, std::uint64_t now_ns) const {
  const std::optional<Asked>& other = last_ && last_->tenant == tenant ? last_of_another_ : last_;
  return other && now_ns - other->at_ns < kAskingNs;
}

void FairTurns::queue(Turn turn, double cost) {
  const Owner owner = turn.owner;
  queue_->push(owner, std::move(turn), cost);
  if (!std::exchange(posted_, true)) post();
}

void FairTurns::post() {
  loop_.post([this, alive = std::weak_ptr<Queue>(queue_)] {
    if (!alive.expired()) serve();
  });
}

void FairTurns::serve() {
  std::uint64_t now_ns = clock_.monotonic_ns();
  const std::uint64_t enough_ns = now_ns + kServeNs;
  while (!queue_->empty() && now_ns < enough_ns) {
    Turn turn = queue_->pop();
    Tenant& tenant = tenants_[turn.owner.tenant];
    if (tenant.paused_until_ns > now_ns && others_ask(turn.owner.tenant, now_ns)) {
      tenant.paused.push_back(std::move(turn));
    } else {
      turn.call();
      const std::uint64_t began_ns = std::exchange(now_ns, clock_.monotonic_ns());
      tenant.paused_until_ns = now_ns + kPausePerTurn * (now_ns - began_ns);
    }
    resume_later(tenant, now_ns);
  }
  posted_ = !queue_->empty();
  if (posted_) post();
}

// Queues one paused turn after each pause.
void FairTurns::resume_later(Tenant& tenant, std::uint64_t now_ns) {
  if (tenant.timer || tenant.paused.empty()) return;
  tenant.timer =
      loop_.after(std::chrono::nanoseconds(tenant.paused_until_ns - now_ns), [this, &tenant] {
        const auto fired = std::move(tenant.timer);  // lives until the end of its own call
        Turn turn = std::move(tenant.paused.front());
        tenant.paused.pop_front();
        queue(std::move(turn), 0);  // its cost was counted before
      });
}

}  // namespace precis
