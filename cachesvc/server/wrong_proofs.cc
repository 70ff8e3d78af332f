#include "cachesvc/server/wrong_proofs.h"

#include <algorithm>
#include <tuple>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

// No address has a line break.
std::string key_of(const std::string& address, const std::string& tenant) {
  return address + "\n" + tenant;
}

}  // namespace

bool WrongProofs::is_old(const Row& row) const {
  return clock_.monotonic_ns() - row.last_ns >= limits::kWrongProofForgetMs * kNsPerMs;
}

Status WrongProofs::may_try(const std::string& address, const std::string& tenant) const {
  const auto row = rows_.find(key_of(address, tenant));
  const std::uint64_t now = clock_.monotonic_ns();
  if (row == rows_.end() || row->second.wait_until_ns <= now) return {};
  const auto left_ms =
      static_cast<std::uint32_t>((row->second.wait_until_ns - now + kNsPerMs - 1) / kNsPerMs);
  return Status::rejected("wrong tokens came from " + address +
                              " for this tenant; the next try is "
                              "answered in " +
                              std::to_string(left_ms) + " ms",
                          left_ms);
}

void WrongProofs::note(const std::string& address, const std::string& tenant, Proof proof) {
  const std::string key = key_of(address, tenant);
  if (proof == Proof::kRight) {
    rows_.erase(key);
    return;
  }
  const auto known = rows_.find(key);
  if (known != rows_.end() && is_old(known->second)) rows_.erase(known);
  if (!rows_.contains(key)) {
    const std::uint32_t wrong = rows_.size() >= limits::kWrongProofRowsMax ? make_room() : 0;
    rows_[key].wrong = wrong;
  }
  Row& row = rows_[key];
  ++row.wrong;
  row.last_ns = clock_.monotonic_ns();
  row.exists = row.exists || proof == Proof::kWrong;
  if (row.wrong < limits::kWrongProofsFree) return;
  const std::uint32_t doublings = std::min(row.wrong - limits::kWrongProofsFree, 16u);
  const std::uint64_t wait_ms = std::min<std::uint64_t>(
      std::uint64_t{limits::kWrongProofWaitMs} << doublings, limits::kWrongProofWaitMsMax);
  row.wait_until_ns = row.last_ns + wait_ms * kNsPerMs;
}

// Takes out the row that protects least: an old one; else one of a tenant that does not exist, for
// whom no guess is right; else the one with the fewest wrong proofs. The row that takes its place
// goes on from its count, which is returned: were it to begin at nothing, rows that push each other
// out would never wait.
std::uint32_t WrongProofs::make_room() {
  const auto worth = [this](const Rows::value_type& entry) {
    const Row& row = entry.second;
    return std::tuple(!is_old(row), row.exists, row.wrong);
  };
  const auto least = std::ranges::min_element(rows_, {}, worth);
  const std::uint32_t wrong = is_old(least->second) ? 0 : least->second.wrong;
  rows_.erase(least);
  return wrong;
}

}  // namespace precis
