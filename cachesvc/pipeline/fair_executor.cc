#include "cachesvc/pipeline/fair_executor.h"

namespace precis {

void FairExecutor::post(Owner owner, Piece piece, double cost) {
  add({std::move(owner), std::move(piece), cost});
}

void FairExecutor::add(Job job) {
  {
    std::lock_guard lock(mutex_);
    const Owner owner = job.owner;
    const double cost = job.cost;
    queue_.push(owner, std::move(job), cost);
  }
  executor_->post([this] { run_one(); });
}

// One call is queued per job; a call picks its job only when it runs.
void FairExecutor::run_one() {
  std::unique_lock lock(mutex_);
  Job job = queue_.pop();
  lock.unlock();
  pieces_.fetch_add(1, std::memory_order_relaxed);  // before a result can be seen
  if (job.piece()) add(std::move(job));
}

}  // namespace precis
