#include "cachesvc/cluster/found_forks.h"

#include <utility>

#include "precis/limits.h"

namespace precis::cluster {
namespace {

// Forks are never removed, and all tenants share them, so a tenant's puts make at most so many
// here.
constexpr std::size_t kPerTenantMax = 256;

}  // namespace

void FoundForks::note(const std::string& tenant, const ForkFinder::Put& put) {
  const std::lock_guard lock(mutex_);
  std::size_t& found = found_of_[tenant];
  if (found == kPerTenantMax) return;
  if (const auto blocks = finder_.add(put)) {
    found_[put.decides] = *blocks;
    ++found;
  }
}

Forks FoundForks::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(found_, {});
}

Forks with_found(Forks forks, const Forks& found) {
  for (const auto& fork : found) {
    if (forks.size() < limits::kForksMax) forks.insert(fork);
  }
  return forks;
}

}  // namespace precis::cluster
