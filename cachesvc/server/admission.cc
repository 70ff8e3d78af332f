#include "cachesvc/server/admission.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {

Status check_reply_size(std::size_t size_bytes) {
  if (size_bytes <= limits::kMessageBytesMax) return {};
  return Status::invalid("the reply has " + std::to_string(size_bytes) +
                         " B, a message may have at most " +
                         std::to_string(limits::kMessageBytesMax) + " B: request less at once");
}

std::size_t connections_for(std::size_t descriptors, std::size_t of_store) {
  const std::size_t half = descriptors / 2;
  const std::size_t rest = descriptors > 2 * of_store ? descriptors - of_store : half;
  const std::size_t pending = std::min<std::size_t>(rest / 2, limits::kPendingConnectionsMax);
  return std::clamp<std::size_t>((rest - pending) / 2, 1, limits::kConnectionsMax);
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
  part_->tenant_->second.used -= amount_;
  part_->quota_.used_ -= amount_;
  part_ = nullptr;
}

Result<Quota::Hold> Quota::take(Part& part, std::uint64_t amount) {
  PRECIS_TRY(part.quota_.check(part, amount));
  part.used_ += amount;
  part.tenant_->second.used += amount;
  part.quota_.used_ += amount;
  return Hold(&part, amount);
}

std::map<std::string, Quota::Tenant>::iterator Quota::meet(const std::string& name,
                                                           std::uint32_t weight) {
  const auto [at, is_new] = tenants_.try_emplace(name);
  Tenant& tenant = at->second;
  weights_ -= is_new ? 0 : tenant.weight;
  tenant.weight = std::max<std::uint32_t>(1, weight);  // the latest weight counts
  weights_ += tenant.weight;
  return at;
}

void Quota::expect(const std::string& tenant, std::uint32_t weight) {
  meet(tenant, weight)->second.expected = true;
}

void Quota::expect_only(const std::vector<TenantConfig>& tenants) {
  for (auto& [name, tenant] : tenants_) tenant.expected = false;
  for (const TenantConfig& tenant : tenants) expect(tenant.name, tenant.weight);
  std::erase_if(tenants_, [this](const auto& row) {
    const bool gone = !row.second.expected && row.second.connections == 0;
    if (gone) weights_ -= row.second.weight;
    return gone;
  });
}

void Quota::limit_tenant(const std::string& tenant, std::uint64_t limit) {
  tenants_.at(tenant).limit = limit;
}

std::uint64_t Quota::used_by(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.used;
}

Quota::Part::Part(Quota& quota, const Owner& owner)
    : quota_(quota), tenant_(quota.meet(owner.tenant, owner.weight.get())) {
  ++tenant_->second.connections;
}

Quota::Part::~Part() {
  Tenant& tenant = tenant_->second;
  if (--tenant.connections > 0 || tenant.expected) return;
  quota_.weights_ -= tenant.weight;
  quota_.tenants_.erase(tenant_);
}

std::uint64_t Quota::allowance(const Tenant& tenant) const {
  if (tenants_.size() == 1) return limit_;
  const std::uint64_t others = used_ - tenant.used;
  const std::uint64_t unshared = limit_ / 2 - std::min(others, limit_ / 2);
  const std::uint64_t share = limit_ / 2 * tenant.weight / weights_;
  return std::max<std::uint64_t>({1, unshared, share});
}

Status Quota::over(const std::string& who, std::uint64_t used, std::uint64_t share) const {
  return Status::rejected(who + " has " + std::to_string(used) + " of " + std::to_string(used_) +
                              " " + what_ + ", its share of " + setting_ + " is " +
                              std::to_string(share) + "; retry later",
                          retry_after_ms_);
}

Status Quota::check(const Part& part, std::uint64_t amount) const {
  const std::uint64_t after = used_ + amount;
  const Tenant& tenant = part.tenant_->second;
  if (tenant.limit != 0 && tenant.used + amount > tenant.limit) {
    return Status::rejected("tenant '" + part.tenant_->first + "' has " +
                                std::to_string(tenant.used) + " " + what_ + ", its own limit is " +
                                std::to_string(tenant.limit) + " (" + setting_ + "); retry later",
                            retry_after_ms_);
  }
  if (used_ == 0) return {};
  if (after > limit_) {
    return Status::rejected("the service has " + std::to_string(used_) + " " + what_ +
                                ", the limit is " + std::to_string(limit_) + " (" + setting_ +
                                "); retry later",
                            retry_after_ms_);
  }
  const std::uint64_t allowed = allowance(tenant);
  if (tenant.used > 0 && tenant.used + amount > allowed) {
    return over("tenant '" + part.tenant_->first + "'", tenant.used, allowed);
  }
  if (tenant.used + amount <= allowed / 2) return {};
  if (tenant.connections == 1 && tenants_.size() > 1) return {};  // the tenant's only connection
  const std::uint64_t share = std::max<std::uint64_t>(1, allowed / 2 / tenant.connections);
  if (part.used_ == 0 || part.used_ + amount <= share) return {};
  return over("this connection", part.used_, share);
}

Admission::Admission(const Limits& limits, const std::vector<TenantConfig>& tenants)
    : connections("connections", "the service's limit", limits::kConnectionsMax,
                  limits::kRetryAfterRequestsMs),
      requests("requests being answered", "max_requests", limits.requests,
               limits::kRetryAfterRequestsMs),
      message_bytes("bytes of requests being answered", "max_message_bytes", limits.message_bytes,
                    limits::kRetryAfterRequestsMs),
      puts("puts in progress", "max_puts", limits.puts, limits::kRetryAfterRequestsMs) {
  set_tenants(tenants);
}

void Admission::set_tenants(const std::vector<TenantConfig>& tenants) {
  for (Quota* const quota : {&connections, &requests, &message_bytes, &puts}) {
    quota->expect_only(tenants);
  }
  for (const TenantConfig& tenant : tenants) puts.limit_tenant(tenant.name, tenant.max_puts);
  rates.set_tenants(tenants);
}

}  // namespace precis
