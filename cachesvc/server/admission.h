// Who may have how much of what all connections share: requests being answered, the bytes of their
// messages, puts under way. What is past a limit is kRejected, naming it, and told when to come
// back. Past half of a limit only those are let in that have less than their share, so that one
// greedy connection never keeps the others out. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "precis/status.h"

namespace precis {

// kInvalidArgument past what one message may be: sent, it would end the connection, and look as if
// the client had done wrong.
Status check_reply_size(std::size_t size_bytes);

class Quota {
 public:
  // `what` is counted, `setting` is what the limit is called.
  Quota(std::string what, std::string setting, std::uint64_t limit, std::uint32_t retry_after_ms)
      : what_(std::move(what)),
        setting_(std::move(setting)),
        limit_(limit),
        retry_after_ms_(retry_after_ms) {}

  // One connection's part of it.
  class Part {
   public:
    explicit Part(Quota& quota) : quota_(quota) { ++quota_.parts_; }
    ~Part() { --quota_.parts_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    friend class Quota;
    Quota& quota_;
    std::uint64_t used_ = 0;
  };

  // So much of it, until destroyed; its part outlives it. Nothing by default.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : part_(std::exchange(other.part_, nullptr)), amount_(other.amount_) {}
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { give_back(); }

   private:
    friend class Quota;
    Hold(Part* part, std::uint64_t amount) : part_(part), amount_(amount) {}
    void give_back();
    Part* part_ = nullptr;
    std::uint64_t amount_ = 0;
  };

  // kRejected if there is not so much left for this part. What is alone is let in at any size.
  static Result<Hold> take(Part& part, std::uint64_t amount);

  std::uint64_t used() const { return used_; }
  // A connection that has more by then keeps it.
  void set_limit(std::uint64_t limit) { limit_ = limit; }

 private:
  Status check(const Part& part, std::uint64_t amount) const;

  const std::string what_, setting_;
  std::uint64_t limit_;
  const std::uint32_t retry_after_ms_;
  std::uint64_t used_ = 0;
  std::uint64_t parts_ = 0;
};

// What the connections of one service share.
struct Admission {
  struct Limits {
    std::uint32_t requests;
    std::uint64_t message_bytes;
    std::uint32_t puts;
  };
  explicit Admission(const Limits& limits);
  Quota requests, message_bytes, puts;
};

}  // namespace precis
