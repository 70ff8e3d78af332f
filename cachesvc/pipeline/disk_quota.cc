#include "cachesvc/pipeline/disk_quota.h"

#include <algorithm>
#include <set>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

// The scopes of every put beside its tenant's; no tenant has such a name.
const std::string kAllTenants, kDisk = "\n";

bool is_of_all(const std::string& scope) { return scope == kAllTenants || scope == kDisk; }

}  // namespace

DiskQuota::DiskQuota(EventLoop& loop, Stored stored, Limits limits, std::chrono::milliseconds wait)
    : loop_(loop),
      stored_([this, stored = std::move(stored)](const std::string& scope) {
        return scope == kDisk ? disk_taken_() : stored(scope);
      }),
      limits_(std::move(limits)),
      wait_(wait) {}

DiskQuota::Place::Place(DiskQuota& room, std::string tenant, std::uint64_t bytes)
    : room_(room), tenant_(std::move(tenant)), bytes_(bytes) {
  room_.promised_[tenant_] += bytes_;
  room_.promised_[kAllTenants] += bytes_;
  room_.promised_[kDisk] += bytes_;
}

DiskQuota::Place::~Place() {
  for (const std::string* scope : {&tenant_, &kAllTenants, &kDisk}) {
    const auto promised = room_.promised_.find(*scope);
    promised->second -= bytes_;
    if (promised->second == 0) room_.promised_.erase(promised);
  }
  if (!room_.waiting_.empty()) room_.loop_.post([&room = room_] { room.retry(); });
}

std::uint64_t DiskQuota::limit_of(const std::string& tenant) const {
  if (tenant.empty()) return limits_.of_all;
  if (tenant == kDisk) return disk_taken_ ? disk_limit_ : 0;
  const auto limit = limits_.of_tenant.find(tenant);
  return limit == limits_.of_tenant.end() ? 0 : limit->second;
}

std::uint64_t DiskQuota::promised(const std::string& tenant) const {
  const auto promised = promised_.find(tenant);
  return promised == promised_.end() ? 0 : promised->second;
}

const std::string* DiskQuota::small_scope(const std::string& tenant, std::uint64_t bytes) const {
  for (const std::string* scope : {&tenant, &kAllTenants, &kDisk}) {
    if (const std::uint64_t limit = limit_of(*scope); limit != 0 && bytes > limit) return scope;
  }
  return nullptr;
}

bool DiskQuota::must_queue(const std::string& tenant) const {
  return std::ranges::any_of(waiting_, [&](const auto& waiter) {
    const std::string* const full = full_scope(waiter->tenant, waiter->bytes);
    return full != nullptr && (is_of_all(*full) || *full == tenant);
  });
}

const std::string* DiskQuota::full_scope(const std::string& tenant, std::uint64_t bytes,
                                         const Stored& stored) const {
  for (const std::string* scope : {&tenant, &kAllTenants, &kDisk}) {
    const std::uint64_t limit = limit_of(*scope);
    if (limit == 0) continue;
    const std::uint64_t before = stored(*scope) + promised(*scope);
    if (before > limit || bytes > limit - before) return scope;
  }
  return nullptr;
}

std::string DiskQuota::told(const std::string& scope, std::uint64_t bytes) const {
  if (scope == kDisk) {
    return "the put may store " + std::to_string(bytes) + " B, and " +
           std::to_string(taken(scope)) + " of the " + std::to_string(disk_limit_) +
           " B that this node's disk may take (warm_disk_bytes, min_free_bytes) are taken or "
           "promised";
  }
  const std::string whose = scope.empty() ? "" : " of tenant '" + scope + "'";
  return "the put may store " + std::to_string(bytes) + " B, and " + std::to_string(taken(scope)) +
         " of the " + std::to_string(limit_of(scope)) + " B of max_disk_bytes" + whose +
         " are stored or promised";
}

Task<Result<std::unique_ptr<DiskQuota::Place>>> DiskQuota::enter(std::string tenant,
                                                                 std::uint64_t bytes) {
  using Answer = Result<std::unique_ptr<Place>>;
  if (const std::string* const small = small_scope(tenant, bytes)) {
    co_return Status::out_of_space(told(*small, bytes) + "; keep fewer entries, or raise " +
                                   (*small == kDisk ? "that" : "max_disk_bytes"));
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
  if (*full == kDisk) {
    answer(waiter, Status::out_of_space(told(*full, w.bytes) + " still, after " +
                                        std::to_string(wait_.count()) +
                                        " ms: the uploads to the shared storage are behind; retry "
                                        "later, or raise warm_disk_bytes"));
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
    if (limit > 0) scopes.push_back(scope_of(name, limit, stored));
  };
  for (const auto& [tenant, limit] : limits_.of_tenant) add(tenant, limit);
  add(kAllTenants, limits_.of_all);
  return scopes;
}

DiskQuota::Scope DiskQuota::scope_of(const std::string& name, std::uint64_t limit,
                                     const Stored& stored) const {
  Scope scope{name, limit, stored(name), promised(name), 0, 0};
  if (const auto first = first_for(name, stored); first != waiting_.end()) {
    scope.wanted = (*first)->bytes;
    const std::uint64_t needed = scope.stored + scope.promised + scope.wanted;
    scope.missing = needed - std::min(needed, limit);
  }
  return scope;
}

DiskQuota::Scope DiskQuota::disk() const {
  const std::uint64_t taken = disk_taken_();
  return scope_of(kDisk, disk_limit_, [&](const std::string& scope) {
    return scope == kDisk ? taken : stored_(scope);
  });
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
  // An answered put may change the list, so the search starts again after each.
  const auto next = [this] {
    std::set<std::string> blocked;  // scopes that an earlier waiter waits for
    for (auto waiter = waiting_.begin(); waiter != waiting_.end(); ++waiter) {
      const Waiter& w = **waiter;
      const std::string* const full = full_scope(w.tenant, w.bytes);
      if (full != nullptr) blocked.insert(*full);
      if (!blocked.contains(w.tenant) && std::ranges::none_of(blocked, is_of_all)) return waiter;
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
  refuse_too_large([](const std::string&, std::uint64_t bytes) {
    return Status::out_of_space("max_disk_bytes was lowered below the " + std::to_string(bytes) +
                                " B that the put may store; keep fewer entries");
  });
  retry();
  tell_change();
}

void DiskQuota::limit_disk(std::uint64_t bytes) {
  if (std::exchange(disk_limit_, bytes) == bytes && waiting_.empty()) return;
  refuse_too_large([this](const std::string& scope, std::uint64_t of_put) {
    return Status::out_of_space(told(scope, of_put) + "; keep fewer entries, or raise that");
  });
  retry();
}

void DiskQuota::refuse_too_large(
    const std::function<Status(const std::string&, std::uint64_t)>& why) {
  const auto too_large = [this] {
    return std::ranges::find_if(waiting_, [this](const auto& waiter) {
      return small_scope(waiter->tenant, waiter->bytes) != nullptr;
    });
  };
  for (auto waiter = too_large(); waiter != waiting_.end(); waiter = too_large()) {
    const std::uint64_t bytes = (*waiter)->bytes;
    answer(waiter, why(*small_scope((*waiter)->tenant, bytes), bytes));
  }
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
