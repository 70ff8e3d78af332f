// Decides from recent results whether the event loop spins before it blocks.
#pragma once

#include <algorithm>

namespace precis {

// Spinning pays if the next event comes soon and from another core. If the other threads need this
// core, spinning delays them.
class SpinPolicy {
 public:
  bool worth_it() const { return idle_left_ == 0; }
  void found() { pause_ = 0; }
  // The loop blocks, after an `unsuccessful` spin or without spinning.
  void blocked(bool unsuccessful) {
    if (unsuccessful) {
      pause_ = std::min(2 * pause_ + 1, kPauseMax);
      idle_left_ = pause_;
    } else if (idle_left_ > 0) {
      --idle_left_;
    }
  }

 private:
  static constexpr int kPauseMax = 63;
  int pause_ = 0;      // how often the loop blocks without spinning after an unsuccessful spin
  int idle_left_ = 0;  // how often it still does so
};

}  // namespace precis
