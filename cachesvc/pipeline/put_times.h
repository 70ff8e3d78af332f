// When the stages of a traced put worked. Any thread: the store ends its writes on threads of its
// own, some of them after the put.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cachesvc/base/clock.h"

namespace precis {

enum class PutStage : std::uint8_t { kStage, kCompress, kWrite };

class PutTimes {
 public:
  explicit PutTimes(const Clock& clock) : clock_(clock) {}

  // From the stage's first moment to its last one, which is `now` while it works. None if it has
  // not begun.
  struct Period {
    Clock::Time begin, end;
  };
  std::optional<Period> of(PutStage stage, Clock::Time now) const {
    std::lock_guard lock(mutex_);
    const Seen& seen = seen_[index(stage)];
    if (!seen.begin) return std::nullopt;
    return Period{*seen.begin, seen.working > 0 ? now : seen.end};
  }

  // The stage works while this object lives.
  class Work {
   public:
    // Null `times`: the put is not traced, and nothing is noted.
    Work(std::shared_ptr<PutTimes> times, PutStage stage)
        : times_(std::move(times)), stage_(stage) {
      if (times_) times_->begin(stage_);
    }
    Work(Work&&) = default;
    ~Work() { end(); }
    void end() {
      if (const auto times = std::exchange(times_, nullptr)) times->end(stage_);
    }

   private:
    std::shared_ptr<PutTimes> times_;
    PutStage stage_;
  };

 private:
  struct Seen {
    std::optional<Clock::Time> begin;
    Clock::Time end{};
    std::size_t working = 0;
  };
  static std::size_t index(PutStage stage) { return static_cast<std::size_t>(stage); }
  void begin(PutStage stage) {
    const Clock::Time now = clock_.now();
    std::lock_guard lock(mutex_);
    Seen& seen = seen_[index(stage)];
    seen.begin = std::min(seen.begin.value_or(now), now);
    ++seen.working;
  }
  void end(PutStage stage) {
    const Clock::Time now = clock_.now();
    std::lock_guard lock(mutex_);
    Seen& seen = seen_[index(stage)];
    seen.end = std::max(seen.end, now);
    --seen.working;
  }

  const Clock& clock_;
  mutable std::mutex mutex_;
  std::array<Seen, 3> seen_;
};

}  // namespace precis
