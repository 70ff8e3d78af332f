#include "cachesvc/server/wrong_proofs.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

// No address has a line break.
std::string key_of(const std::string& address, const std::string& tenant) {
  return address + "\n" + tenant;
}

}  // namespace

WrongProofs::Row* WrongProofs::find(const std::string& key) {
  const auto found = std::ranges::find(rows_, key, &Row::key);
  if (found == rows_.end()) return nullptr;
  rows_.splice(rows_.end(), rows_, found);
  return &*found;
}

Status WrongProofs::may_try(const std::string& address, const std::string& tenant) {
  const Row* const row = find(key_of(address, tenant));
  const std::uint64_t now = clock_.monotonic_ns();
  if (row == nullptr || row->wait_until_ns <= now) return {};
  const auto left_ms =
      static_cast<std::uint32_t>((row->wait_until_ns - now + kNsPerMs - 1) / kNsPerMs);
  return Status::rejected("wrong tokens came from " + address +
                              " for this tenant; the next try is "
                              "answered in " +
                              std::to_string(left_ms) + " ms",
                          left_ms);
}

void WrongProofs::note(const std::string& address, const std::string& tenant, bool right) {
  const std::string key = key_of(address, tenant);
  if (right) {
    std::erase_if(rows_, [&](const Row& row) { return row.key == key; });
    return;
  }
  Row* row = find(key);
  if (row == nullptr) {
    if (rows_.size() >= limits::kWrongProofRowsMax) {
      rows_.erase(std::ranges::min_element(rows_, {}, &Row::wrong));
    }
    row = &rows_.emplace_back(Row{key});
  }
  ++row->wrong;
  if (row->wrong < limits::kWrongProofsFree) return;
  const std::uint32_t doublings = std::min(row->wrong - limits::kWrongProofsFree, 16u);
  const std::uint64_t wait_ms = std::min<std::uint64_t>(
      std::uint64_t{limits::kWrongProofWaitMs} << doublings, limits::kWrongProofWaitMsMax);
  row->wait_until_ns = clock_.monotonic_ns() + wait_ms * kNsPerMs;
}

}  // namespace precis
