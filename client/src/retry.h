// One call as its caller sees it: its deadline, and whether a failure is retried. The backoff
// doubles and is random, so that clients refused together do not return together, and it is never
// shorter than the service asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "cachesvc/base/runtime.h"
#include "precis/messages.h"
#include "precis/options.h"
#include "precis/status.h"

namespace precis {

// The part of ConnectOptions that concerns every call.
struct CallOptions {
  std::uint32_t timeout_ms;
  std::uint32_t deadline_ms;  // 0: none
  bool retry;
  Runtime* runtime;  // never null
};

inline CallOptions call_options(const ConnectOptions& options, Runtime& runtime) {
  return {options.timeout_ms, options.deadline_ms, options.retry, &runtime};
}

class Retry {
 public:
  using Time = Clock::Time;

  // The call begins now. `what`: RequestKind::call.
  Retry(const CallOptions& options, std::string what);

  // Time::max() if there is none.
  Time deadline() const { return deadline_; }
  const Clock& clock() const { return options_.runtime->clock(); }
  const std::string& what() const { return what_; }
  bool retries() const { return options_.retry; }
  // The time that connecting may take.
  std::uint32_t connect_timeout_ms() const;
  // kTimedOut naming the call, the deadline and what it waited for.
  Status too_late(const std::string& waited_for) const;

  // For a failed attempt that had no effect or may be repeated. OK: the backoff has passed, try
  // again. Otherwise the error for the caller: `failed` if a retry cannot help, is not wanted, or
  // if the time for retries is over.
  Status again(const Status& failed);
  // Keeps the backoff short, because another node may soon serve the call.
  void hurry() { is_hurried_ = true; }
  // A part of the call succeeded: the next failure counts as the next part's first.
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
  std::optional<Time> give_up_;  // set at the first failure
  std::uint32_t tries_ = 0;
  bool is_hurried_ = false;
  // Created at first need: a hardware random number costs more than a typical call.
  std::optional<std::minstd_rand> random_;
};

}  // namespace precis
