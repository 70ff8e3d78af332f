#include "client/src/retry.h"

#include <algorithm>
#include <utility>

#include "client/src/interrupt.h"

namespace precis {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBackoffMin{10}, kBackoffMax{1000}, kHurriedBackoffMax{200};
constexpr std::uint32_t kDoublingsMax = 10;

Retry::Time deadline_of(const CallOptions& options) {
  if (options.deadline_ms == 0) return Retry::Time::max();
  return options.runtime->clock().now() + milliseconds(options.deadline_ms);
}

}  // namespace

Retry::Retry(const CallOptions& options, std::string what)
    : options_(options), what_(std::move(what)), deadline_(deadline_of(options)) {}

std::uint32_t Retry::connect_timeout_ms() const {
  if (deadline_ == Time::max()) return options_.timeout_ms;
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - clock().now()).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left, 1, std::max<std::uint32_t>(options_.timeout_ms, 1)));
}

Status Retry::timed_out(const std::string& how) const {
  return Status::timed_out(what_ + ": its deadline of " + std::to_string(options_.deadline_ms) +
                           " ms " + how);
}

Status Retry::too_late(const std::string& waited_for) const {
  return timed_out("passed, it waited for " + waited_for);
}

milliseconds Retry::wait_for(const Status& failed) {
  const milliseconds hint(failed.retry_after_ms());
  const milliseconds first = std::max(hint, kBackoffMin);
  const milliseconds longest = std::max(hint, is_hurried_ ? kHurriedBackoffMax : kBackoffMax);
  const milliseconds wait = std::min(first * (1 << std::min(tries_++, kDoublingsMax)), longest);
  if (!random_)
    random_.emplace(static_cast<std::minstd_rand::result_type>(options_.runtime->random()));
  return std::max(hint, wait / 2) +
         milliseconds((*random_)() % static_cast<std::uint64_t>(wait.count()));
}

Status Retry::again(const Status& failed) {
  const bool helps = failed.code() == StatusCode::kUnavailable ||
                     failed.code() == StatusCode::kMoved || failed.retry_after_ms() > 0;
  if (!helps || !options_.retry) return failed;
  const auto now = clock().now();
  if (!give_up_) give_up_ = std::min(deadline_, now + milliseconds(options_.timeout_ms));
  const Time end = deadline_ == Time::max() ? *give_up_ : deadline_;
  const milliseconds wait = wait_for(failed);
  if (now + wait < end) {
    if (Interrupt(clock()).sleep(wait)) return {};
    return Status::canceled(what_ +
                            ": interrupted, it was to be tried again after: " + failed.message());
  }
  if (failed.code() == StatusCode::kUnavailable && deadline_ != Time::max()) {
    return timed_out("leaves no time to try the service again, after " + std::to_string(tries_) +
                     " tries: " + failed.message());
  }
  return failed;
}

}  // namespace precis
