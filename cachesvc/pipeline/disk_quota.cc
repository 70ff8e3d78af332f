#include "cachesvc/pipeline/disk_quota.h"

#include <algorithm>
#include <set>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

const std::string kAllTenants;

}  // namespace

DiskQuota::Place::Place(DiskQuota& room, std::string tenant, std::uint64_t bytes)
    : room_(room), tenant_(std::move(tenant)), bytes_(bytes) {
  room_.promised_[tenant_] += bytes_;
  room_.promised_[kAllTenants] += bytes_;
}

DiskQuota::Place::~Place() {
  for (const std::string* scope : {&tenant_, &kAllTenants}) {
    const auto promised = room_.promised_.find(*scope);
    promised->second -= bytes_;
    if (promised->second == 0) room_.promised_.erase(promised);
  }
  if (!room_.waiting_.empty()) room_.loop_.post([&room = room_] { room.retry(); });
}

std::uint64_t DiskQuota::limit_of(const std::string& tenant) const {
  if (tenant.empty()) return limits_.of_all;
  const auto limit = limits_.of_tenant.find(tenant);
  return limit == limits_.of_tenant.end() ? 0 : limit->second;
}

std::uint64_t DiskQuota::promised(const std::string& tenant) const {
  const auto promised = promised_.find(tenant);
  return promised == promised_.end() ? 0 : promised->second;
}

const std::string* DiskQuota::small_scope(const std::string& tenant, std::uint64_t bytes) const {
  for (const std::string* scope : {&tenant, &kAllTenants}) {
    if (const std::uint64_t limit = limit_of(*scope); limit != 0 && bytes > limit) return scope;
  }
  return nullptr;
}

bool DiskQuota::must_queue(const std::string& tenant) const {
  return std::ranges::any_of(waiting_, [&](const auto& waiter) {
    const std::string* const full = full_scope(waiter->tenant, waiter->bytes);
    return full != nullptr && (full->empty() || *full == tenant);
  });
}

const std::string* DiskQuota::full_scope(const std::string& tenant, std::uint64_t bytes,
                                         const Stored& stored) const {
  for (const std::string* scope : {&tenant, &kAllTenants}) {
    const std::uint64_t limit = limit_of(*scope);
    if (limit == 0) continue;
    const std::uint64_t before = stored(*scope) + promised(*scope);
    if (before > limit || bytes > limit - before) return scope;
  }
  return nullptr;
}

std::string DiskQuota::told(const std::string& scope, std::uint64_t bytes) const {
  const std::string whose = scope.empty() ? "" : " of tenant '" + scope + "'";
  return "the put may store " + std::to_string(bytes) + " B, and " + std::to_string(taken(scope)) +
         " of the " + std::to_string(limit_of(scope)) + " B of max_disk_bytes" + whose +
         " are stored or promised";
}

Task<Result<std::unique_ptr<DiskQuota::Place>>> DiskQuota::enter(std::string tenant,
                                                                 std::uint64_t bytes) {
  using Answer = Result<std::unique_ptr<Place>>;
  if (const std::string* const small = small_scope(tenant, bytes)) {
    co_return Status::out_of_space(told(*small, bytes) +
                                   "; keep fewer entries, or raise max_disk_bytes");
  }
  if (full_scope(tenant, bytes) == nullptr && !must_queue(tenant)) {
    auto place = std::make_unique<Place>(*this, std::move(tenant), bytes);
    tell_change();
    co_return place;
  }
  if (stopped_) co_return Status::unavailable("the service is stopping");
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    waiting_.push_back(std::make_unique<Waiter>());
    const auto waiter = std::prev(waiting_.end());
    (*waiter)->tenant = std::move(tenant);
    (*waiter)->bytes = bytes;
    (*waiter)->done = std::move(done);
    (*waiter)->since = loop_.clock().now();
    (*waiter)->deadline = loop_.after(wait_, [this, waiter] { give_up(waiter); });
    tell_change();
  });
}

void DiskQuota::give_up(Waiters::const_iterator waiter) {
  const Waiter& w = **waiter;
  const std::string* const full = full_scope(w.tenant, w.bytes);
  if (full == nullptr) {  // one last try, also ahead of others that wait
    answer(waiter, std::make_unique<Place>(*this, w.tenant, w.bytes));
    return;
  }
  answer(waiter,
         Status::rejected(told(*full, w.bytes) + " still, after " + std::to_string(wait_.count()) +
                              " ms; raise max_disk_bytes or retry later",
                          limits::kRetryAfterMemoryMs));
}

std::vector<DiskQuota::Scope> DiskQuota::scopes() const {
  std::vector<Scope> scopes;
  std::map<std::string, std::uint64_t, std::less<>> known;
  const Stored stored = [&](const std::string& name) {
    const auto [at, is_new] = known.try_emplace(name, 0);
    if (is_new) at->second = stored_(name);
    return at->second;
  };
  const auto add = [&](const std::string& name, std::uint64_t limit) {
    if (limit == 0) return;
    Scope scope{name, limit, stored(name), promised(name), 0, 0};
    if (const auto first = first_for(name, stored); first != waiting_.end()) {
      scope.wanted = (*first)->bytes;
      const std::uint64_t needed = scope.stored + scope.promised + scope.wanted;
      scope.missing = needed - std::min(needed, limit);
    }
    scopes.push_back(std::move(scope));
  };
  for (const auto& [tenant, limit] : limits_.of_tenant) add(tenant, limit);
  add(kAllTenants, limits_.of_all);
  return scopes;
}

// The waiter's coroutine may run on at once and enter again, so the waiter leaves first.
void DiskQuota::answer(Waiters::const_iterator waiter, Result<std::unique_ptr<Place>> result) {
  const std::unique_ptr<Waiter> left = std::move(*waiting_.erase(waiter, waiter));  // erases none
  waiting_.erase(waiter);
  waits_.at({left->tenant, {}, {}, {}})
      .observe(std::chrono::duration<double>(loop_.clock().now() - left->since).count());
  left->done(std::move(result));
}

void DiskQuota::retry() {
  // An answered put may change the list, so the search begins anew after each.
  const auto next = [this] {
    std::set<std::string> blocked;  // scopes that an earlier waiter waits for
    for (auto waiter = waiting_.begin(); waiter != waiting_.end(); ++waiter) {
      const Waiter& w = **waiter;
      const std::string* const full = full_scope(w.tenant, w.bytes);
      if (full != nullptr) blocked.insert(*full);
      if (!blocked.contains(w.tenant) && !blocked.contains(kAllTenants)) return waiter;
    }
    return waiting_.end();
  };
  for (auto waiter = next(); waiter != waiting_.end(); waiter = next()) {
    auto place = std::make_unique<Place>(*this, (*waiter)->tenant, (*waiter)->bytes);
    answer(waiter, std::move(place));
  }
}

DiskQuota::Waiters::const_iterator DiskQuota::first_for(const std::string& scope,
                                                        const Stored& stored) const {
  return std::ranges::find_if(waiting_, [&](const auto& waiter) {
    const std::string* const full = full_scope(waiter->tenant, waiter->bytes, stored);
    return full != nullptr && *full == scope;
  });
}

void DiskQuota::refuse_first(const std::string& scope) {
  const auto first = first_for(scope, stored_);
  if (first == waiting_.end()) return;
  answer(first, Status::out_of_space(
                    told(scope, (*first)->bytes) +
                    ", and not enough can be freed: pinned sessions hold it; unpin sessions "
                    "(precisctl session unpin), keep fewer entries, or raise max_disk_bytes"));
}

void DiskQuota::set_limits(Limits limits) {
  limits_ = std::move(limits);
  const auto too_large = [this] {
    return std::ranges::find_if(waiting_, [this](const auto& waiter) {
      return small_scope(waiter->tenant, waiter->bytes) != nullptr;
    });
  };
  for (auto waiter = too_large(); waiter != waiting_.end(); waiter = too_large()) {
    answer(waiter, Status::out_of_space("max_disk_bytes was lowered below the " +
                                        std::to_string((*waiter)->bytes) +
                                        " B that the put may store; keep fewer entries"));
  }
  retry();
  tell_change();
}

void DiskQuota::stop() {
  stopped_ = true;
  while (!waiting_.empty()) {
    answer(waiting_.begin(), Status::unavailable("the service is stopping"));
  }
}

void DiskQuota::tell_change() {
  const bool limited = limits_.of_all > 0 || !limits_.of_tenant.empty();
  if (changed_ && limited) changed_();
}

}  // namespace precis
