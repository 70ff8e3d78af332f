// Limits on shared resources: connections, requests in progress, the bytes of their messages, puts
// in progress. A request past a limit gets kRejected, which names the limit and when to retry.
//
// Tenants share a limit by their weight, and connections share their tenant's part. Once half of a
// limit is in use, a tenant gets more only while it uses less than its share of the other half.
// Once a tenant uses half of what it may have, one of its connections gets more only while it uses
// less than its share of the rest. So neither a tenant with many connections nor one greedy
// connection excludes the others. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/pipeline/fair_queue.h"
#include "cachesvc/server/request_rates.h"
#include "precis/status.h"

namespace precis {

// kInvalidArgument if a reply is larger than a message may be. Sending it would end the connection,
// as if the client had broken the protocol.
Status check_reply_size(std::size_t size_bytes);

// The number of connections for a process that may have `descriptors` open. The store takes up to
// `of_store` of them, and each connection takes two of the rest. If there are few descriptors, half
// of them are for connections.
std::size_t connections_for(std::size_t descriptors, std::size_t of_store);

class Quota {
 public:
  // `what` names the counted unit, `setting` the limit.
  Quota(std::string what, std::string setting, std::uint64_t limit, std::uint32_t retry_after_ms)
      : what_(std::move(what)),
        setting_(std::move(setting)),
        limit_(limit),
        retry_after_ms_(retry_after_ms) {}

  struct Tenant {
    std::uint32_t weight = 1;
    std::uint64_t used = 0;
    std::uint64_t connections = 0;
    bool expected = false;    // has its share also while it is not connected
    std::uint64_t limit = 0;  // of its own; 0: none
  };
  // Reserves a share for this tenant, connected or not.
  void expect(const std::string& tenant, std::uint32_t weight);
  // Reserves shares for these tenants only. Any other tenant has its share while it is connected.
  void expect_only(const std::vector<TenantConfig>& tenants);
  // Sets a tenant's own limit; 0: none. The tenant is expected.
  void limit_tenant(const std::string& tenant, std::uint64_t limit);

  // One connection's part of the quota, within its tenant's part.
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

  // An amount of the quota, held until destroyed. Its part must outlive it. Empty by default.
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

  // kRejected if less than `amount` is left for this part. Any amount is granted while nothing is
  // in use.
  static Result<Hold> take(Part& part, std::uint64_t amount);

  std::uint64_t used() const { return used_; }
  std::uint64_t used_by(const std::string& tenant) const;
  // Holds that exceed the new limit stay valid.
  void set_limit(std::uint64_t limit) { limit_ = limit; }

 private:
  Status check(const Part& part, std::uint64_t amount) const;
  Status over(const std::string& who, std::uint64_t used, std::uint64_t share) const;
  std::map<std::string, Tenant>::iterator meet(const std::string& tenant, std::uint32_t weight);
  // Returns the most that the tenant may have, given what the other tenants have.
  std::uint64_t allowance(const Tenant& tenant) const;

  const std::string what_, setting_;
  std::uint64_t limit_;
  const std::uint32_t retry_after_ms_;
  std::uint64_t used_ = 0;
  std::map<std::string, Tenant> tenants_;  // expected tenants, and those with connections
  std::uint64_t weights_ = 0;              // sum of their weights
};

// The resources that all connections of a service share.
struct Admission {
  struct Limits {
    std::uint32_t requests;
    std::uint64_t message_bytes;
    std::uint32_t puts;
  };
  // `tenants`: the configured tenants.
  Admission(const Limits& limits, const std::vector<TenantConfig>& tenants);
  // Applies a new list of tenants. New weights and limits also affect existing connections at once.
  void set_tenants(const std::vector<TenantConfig>& tenants);
  Quota connections, requests, message_bytes, puts;
  RequestRates rates;
};

}  // namespace precis
