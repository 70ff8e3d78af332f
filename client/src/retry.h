// One call as its caller sees it: its deadline, and whether what failed is tried again. Backoff is
// random around a doubling wait, so that clients that were turned away together do not come back
// together, and never before the service told them to.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "precis/messages.h"
#include "precis/options.h"
#include "precis/status.h"

namespace precis {

// What of ConnectOptions concerns every call.
struct CallOptions {
  std::uint32_t timeout_ms;
  std::uint32_t deadline_ms;  // 0: none
  bool retry;
};

inline CallOptions call_options(const ConnectOptions& options) {
  return {options.timeout_ms, options.deadline_ms, options.retry};
}

class Retry {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The call begins now. `what`: RequestKind::call.
  Retry(const CallOptions& options, std::string what);

  // Time::max() where there is none.
  Time deadline() const { return deadline_; }
  const std::string& what() const { return what_; }
  bool retries() const { return options_.retry; }
  // What connecting may take.
  std::uint32_t connect_timeout_ms() const;
  // kTimedOut that names the call, the deadline and what it waited for.
  Status too_late(const std::string& waited_for) const;

  // After `failed`, which did nothing or may be done twice. OK: it has been waited as long as is
  // right, try again. Else what to tell the caller: `failed` where trying again does not help or is
  // not wanted, or where it was tried long enough.
  Status again(const Status& failed);
  // A part of the call was done: the next failure is its next part's first.
  void went_well() {
    give_up_.reset();
    tries_ = 0;
  }

 private:
  Status timed_out(const std::string& how) const;
  std::chrono::milliseconds wait_for(const Status& failed);

  const CallOptions options_;
  const std::string what_;
  const Time deadline_;
  std::optional<Time> give_up_;  // from the first failure on
  std::uint32_t tries_ = 0;
  // Once it is needed: the processor's random numbers cost more than the call they are for.
  std::optional<std::minstd_rand> random_;
};

}  // namespace precis
