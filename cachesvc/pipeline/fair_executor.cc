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
  executor_.post([this] { run_one(); });
}

// As many calls of it are queued as there are jobs; which one it runs is decided now.
void FairExecutor::run_one() {
  std::unique_lock lock(mutex_);
  Job job = queue_.pop();
  lock.unlock();
  pieces_.fetch_add(1, std::memory_order_relaxed);  // before anybody hears what came of it
  if (job.piece()) add(std::move(job));
}

}  // namespace precis
