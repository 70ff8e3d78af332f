#include "cachesvc/server/wrong_proofs.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

// An address never contains a line break.
std::string key_of(const std::string& address, const std::string& tenant) {
  return address + "\n" + tenant;
}

bool is_old(std::uint64_t last_ns, std::uint64_t now) {
  return now - last_ns >= limits::kWrongProofExpiryMs * kNsPerMs;
}

}  // namespace

Status WrongProofs::may_try(const std::string& address, const std::string& tenant) const {
  const auto row = rows_.find(key_of(address, tenant));
  const std::uint64_t now = clock_.monotonic_ns();
  if (row == rows_.end() || row->second.wait_until_ns <= now) return {};
  const auto left_ms =
      static_cast<std::uint32_t>((row->second.wait_until_ns - now + kNsPerMs - 1) / kNsPerMs);
  return Status::denied("wrong tokens came from " + address +
                            " for this tenant; the next try is answered in " +
                            std::to_string(left_ms) + " ms",
                        left_ms);
}

void WrongProofs::note(const std::string& address, const std::string& tenant, Proof proof) {
  const std::string key = key_of(address, tenant);
  const std::uint64_t now = clock_.monotonic_ns();
  const auto known = rows_.find(key);
  Row row = known != rows_.end() ? take_out(known) : Row{.last_ns = now};
  if (proof == Proof::kRight) return;
  if (is_old(row.last_ns, now)) row = {};
  // The table is full only if `key` had no row: take_out() would have made room.
  if (rows_.size() >= limits::kWrongProofRowsMax) row.wrong = make_room(now);
  ++row.wrong;
  row.last_ns = now;
  row.exists = row.exists || proof == Proof::kWrong;
  if (row.wrong >= limits::kWrongProofsFree) {
    const std::uint32_t doublings = std::min(row.wrong - limits::kWrongProofsFree, 16u);
    const std::uint64_t wait_ms = std::min<std::uint64_t>(
        std::uint64_t{limits::kWrongProofWaitMs} << doublings, limits::kWrongProofWaitMsMax);
    row.wait_until_ns = now + wait_ms * kNsPerMs;
  }
  put_in(key, row);
}

void WrongProofs::erase(const std::string& tenant) {
  for (auto at = rows_.begin(); at != rows_.end();) {
    const auto row = at++;
    if (row->first.ends_with("\n" + tenant)) take_out(row);
  }
}

// An old row protects nothing. Among the others, the row of a tenant that does not exist is the
// least useful, because no guess for it can be right; then the row with the fewest wrong proofs.
WrongProofs::Worth WrongProofs::worth(const Rows::value_type& entry) {
  return {entry.second.exists, entry.second.wrong, &entry.first};
}

WrongProofs::Row WrongProofs::take_out(Rows::iterator at) {
  by_age_.erase({at->second.last_ns, &at->first});
  by_worth_.erase(worth(*at));
  const Row row = at->second;
  rows_.erase(at);
  return row;
}

void WrongProofs::put_in(const std::string& key, const Row& row) {
  const auto at = rows_.emplace(key, row).first;
  by_age_.emplace(row.last_ns, &at->first);
  by_worth_.insert(worth(*at));
}

// Removes the least useful row. Returns its count, with which the new row starts: if new rows
// started at 0, rows that replace each other would never wait.
std::uint32_t WrongProofs::make_room(std::uint64_t now) {
  const auto& [oldest_ns, oldest] = *by_age_.begin();
  if (!is_old(oldest_ns, now)) return take_out(rows_.find(*std::get<2>(*by_worth_.begin()))).wrong;
  take_out(rows_.find(*oldest));
  return 0;
}

}  // namespace precis
