#include "cachesvc/server/admission.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {

Status check_reply_size(std::size_t size_bytes) {
  if (size_bytes <= limits::kMessageBytesMax) return {};
  return Status::invalid("the service's reply is " + std::to_string(size_bytes) +
                         " B, the limit of a message is " +
                         std::to_string(limits::kMessageBytesMax) + " B: ask for less at once");
}

Quota::Hold& Quota::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  part_ = std::exchange(other.part_, nullptr);
  amount_ = other.amount_;
  return *this;
}

void Quota::Hold::give_back() {
  if (part_ == nullptr) return;
  part_->used_ -= amount_;
  part_->quota_.used_ -= amount_;
  part_ = nullptr;
}

Result<Quota::Hold> Quota::take(Part& part, std::uint64_t amount) {
  PRECIS_TRY(part.quota_.check(part, amount));
  part.used_ += amount;
  part.quota_.used_ += amount;
  return Hold(&part, amount);
}

Status Quota::check(const Part& part, std::uint64_t amount) const {
  const std::uint64_t after = used_ + amount;
  if (used_ == 0 || after <= limit_ / 2) return {};
  if (after > limit_) {
    return Status::rejected("the service has " + std::to_string(used_) + " " + what_ +
                                ", the most there may be are " + std::to_string(limit_) + " (" +
                                setting_ + "); retry later",
                            retry_after_ms_);
  }
  const std::uint64_t share = std::max<std::uint64_t>(1, limit_ / 2 / parts_);
  if (part.used_ == 0 || part.used_ + amount <= share) return {};
  return Status::rejected("this connection has " + std::to_string(part.used_) + " of " +
                              std::to_string(used_) + " " + what_ + ", its share of " + setting_ +
                              " is " + std::to_string(share) + "; retry later",
                          retry_after_ms_);
}

Admission::Admission(const Limits& limits)
    : requests("requests being answered", "max_requests", limits.requests,
               limits::kRetryAfterRequestsMs),
      message_bytes("bytes of requests being answered", "max_message_bytes", limits.message_bytes,
                    limits::kRetryAfterRequestsMs),
      puts("puts under way", "max_puts", limits.puts, limits::kRetryAfterRequestsMs) {}

}  // namespace precis
