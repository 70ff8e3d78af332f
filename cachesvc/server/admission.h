// Who may have how much of what all share: connections, requests being answered, the bytes of their
// messages, puts under way. What is past a limit is kRejected, naming it, and told when to come
// back.
//
// Shares are the tenants' first, by their weight, and then their connections'. Past half of a limit
// only tenants are let in that have less than their share of the other half; and past half of what
// a tenant may have only those of its connections that have less than their share of the rest. So
// neither a tenant with many connections nor one greedy connection keeps the others out. Loop
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/pipeline/fair_queue.h"
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

  struct Tenant {
    std::uint32_t weight = 1;
    std::uint64_t used = 0;
    std::uint64_t connections = 0;
    bool expected = false;  // it has its share also while it is not connected
  };
  // Keeps a share for this tenant, whether it is connected or not.
  void expect(const std::string& tenant, std::uint32_t weight);
  // Keeps shares for these alone: another one has its share while it is connected.
  void expect_only(const std::vector<TenantConfig>& tenants);

  // One connection's part of it, which is a part of its tenant's.
  class Part {
   public:
    explicit Part(Quota& quota, const Owner& owner = {});
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    friend class Quota;
    Quota& quota_;
    const std::map<std::string, Tenant>::iterator tenant_;
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
  Status over(const std::string& who, std::uint64_t used, std::uint64_t share) const;
  std::map<std::string, Tenant>::iterator meet(const std::string& tenant, std::uint32_t weight);
  // The most that the tenant may have, beside what the others have.
  std::uint64_t allowance(const Tenant& tenant) const;

  const std::string what_, setting_;
  std::uint64_t limit_;
  const std::uint32_t retry_after_ms_;
  std::uint64_t used_ = 0;
  std::map<std::string, Tenant> tenants_;  // those expected, and those with connections
  std::uint64_t weights_ = 0;              // theirs, added up
};

// What the connections of one service share.
struct Admission {
  struct Limits {
    std::uint32_t requests;
    std::uint64_t message_bytes;
    std::uint32_t puts;
  };
  // `tenants`: those that are configured.
  Admission(const Limits& limits, const std::vector<TenantConfig>& tenants);
  // Takes up tenants that were configured anew. A weight counts at once for the connections there
  // are.
  void set_tenants(const std::vector<TenantConfig>& tenants);
  Quota connections, requests, message_bytes, puts;
};

}  // namespace precis
