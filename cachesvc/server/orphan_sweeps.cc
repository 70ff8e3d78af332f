#include "cachesvc/server/orphan_sweeps.h"

#include <utility>

namespace precis {
namespace {

constexpr std::chrono::hours kEvery{24}, kAge{1};

}  // namespace

// The nodes of a cluster often start at the same time, so each waits for a random time.
OrphanSweeps::OrphanSweeps(const Parts& parts)
    : parts_(parts),
      orphans_({parts.tier, parts.uploads, parts.catalog, parts.runtime.clock(), kAge}),
      thread_(parts.runtime.make_executor("orphans", 1)) {
  const auto day_s = static_cast<std::uint64_t>(std::chrono::seconds(kEvery).count());
  sweep_after(std::chrono::seconds(parts_.runtime.random() % day_s));
}

OrphanSweeps::~OrphanSweeps() {
  orphans_.stop();
  thread_.reset();
}

void OrphanSweeps::sweep_after(std::chrono::nanoseconds delay) {
  timer_ = parts_.loop.after(delay, [this] {
    const auto fired = std::move(timer_);  // lives until the end of its own call
    thread_->post([this] {
      const Orphans::Done done = orphans_.sweep();
      parts_.loop.post([this, done] { note(done); });
    });
  });
}

void OrphanSweeps::note(const Orphans::Done& done) {
  parts_.removed += done.removed;
  if (done.removed > 0) {
    parts_.log.info("removed objects that no row names from the shared storage",
                    {{"objects", done.removed}});
  }
  if (!done.problem.ok()) {
    parts_.log.warn("the shared storage was not swept to the end for objects that no row names",
                    {{"error", done.problem.message()}});
  }
  sweep_after(done.again ? kAge : kEvery);
}

}  // namespace precis
