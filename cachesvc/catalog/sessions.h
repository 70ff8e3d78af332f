// The sessions (ARCHITECTURE.md, Words), which are named tips, and their rules. In memory only; the
// catalog stores the rows and knows the segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "precis/catalog_row.h"

namespace precis {

// ---- pure functions from a request and a row to a new row

// Finds or creates a session: `present` is null if there is none. kInvalidArgument for a name or
// TTL past limits, or a total that is neither a ratio nor bytes.
Result<msg::SessionRow> opened_session(const msg::SessionRow* present,
                                       const msg::OpenSession& request, std::uint64_t now_ms);
// A new tip counts as a new turn. Renews the TTL.
msg::SessionRow advanced_session(const msg::SessionRow& present, const SegmentId& tip,
                                 std::uint32_t tip_end, std::uint64_t now_ms);
// With a TTL that starts now.
msg::SessionRow renewed_session(const msg::SessionRow& present, std::uint64_t now_ms);
// Returns whether a tenth of its TTL has passed. Each renewal is a write, so lookups do not
// always renew it.
bool renewal_is_due(const msg::SessionRow& present, std::uint64_t now_ms);
// The same tip, turns and total under a new name, unpinned, with a TTL that starts now.
Result<msg::SessionRow> forked_session(const msg::SessionRow& present, const std::string& new_name,
                                       std::uint64_t now_ms);

// ---- the existing sessions

// Not thread-safe. An expired session is no longer found, but stays in memory until it is erased. A
// TTL also ends a pinned session.
class Sessions {
 public:
  struct Key {
    std::string tenant, name;
    auto operator<=>(const Key&) const = default;
  };

  // `pin` is called with 1 for the tip of each pinned session that is put, and with -1 when it is
  // replaced or erased.
  explicit Sessions(std::function<void(const SegmentId& tip, int by)> pin) : pin_(std::move(pin)) {}

  void put(std::string_view tenant, msg::SessionRow row);
  void erase(const Key& key);

  // Requires that there is such a session, expired or not.
  const msg::SessionRow& at(const Key& key) const { return rows_.at(key); }
  std::vector<Key> in_shards(const std::vector<bool>& shards) const;  // expired ones too
  // Null if absent or expired.
  const msg::SessionRow* find(std::string_view tenant, std::string_view name,
                              std::uint64_t now_ms) const;
  // At most `limit` sessions by name, with names after `after`.
  std::vector<msg::SessionRow> page(std::string_view tenant, std::string_view after,
                                    std::size_t limit, std::uint64_t now_ms) const;
  // Calls `fn` for each of the tenant's sessions with this tip. It looks at no other sessions.
  template <typename Fn>
  void each_at(std::string_view tenant, const SegmentId& tip, std::uint64_t now_ms,
               const Fn& fn) const {
    for (auto at = by_tip_.lower_bound(first_at(tenant, tip));
         at != by_tip_.end() && is_at(*at, tenant, tip); ++at) {
      const msg::SessionRow& row = *std::get<const msg::SessionRow*>(*at);
      if (!has_expired(row, now_ms)) fn(row);
    }
  }
  // Returns a pinned session with this tip, or null. Work: one look-up, independent of their
  // number.
  const msg::SessionRow* pinned_at(std::string_view tenant, const SegmentId& tip,
                                   std::uint64_t now_ms) const;
  // Both leave out expired sessions. Any number of threads may call them while nothing else
  // changes. Work: a step for each session that has expired since the last call.
  std::uint64_t count(std::string_view tenant, std::uint64_t now_ms) const;
  std::uint64_t count(std::uint64_t now_ms) const;
  // At most `limit` of the expired sessions.
  std::vector<Key> expired(std::uint64_t now_ms, std::size_t limit) const;

 private:
  static bool has_expired(const msg::SessionRow& row, std::uint64_t now_ms) {
    return row.expires_unix_ms != 0 && row.expires_unix_ms <= now_ms;
  }

  // Tenant, tip, unpinned, a value that is greater the earlier the row expires, and the row, whose
  // address is stable. So the first entry of a tip is its longest-lived pinned session, if any.
  using AtTip =
      std::tuple<std::string_view, SegmentId, bool, std::uint64_t, const msg::SessionRow*>;
  using Rows = std::map<Key, msg::SessionRow>;
  static AtTip at_tip(const Rows::value_type& row);
  static AtTip first_at(std::string_view tenant, const SegmentId& tip) {
    return {tenant, tip, false, 0, nullptr};
  }
  static bool is_at(const AtTip& at, std::string_view tenant, const SegmentId& tip) {
    return std::get<0>(at) == tenant && std::get<SegmentId>(at) == tip;
  }

  struct Counts {
    std::uint64_t rows = 0;
    std::uint64_t expired = 0;  // of them; guarded by noticed_mutex_
  };
  // Callers hold noticed_mutex_ for these three.
  bool is_noticed(const msg::SessionRow& row) const { return has_expired(row, noticed_ms_); }
  void notice(std::uint64_t now_ms) const;  // counts what has expired by then, and nothing else
  void count_expired(Counts& counts, int by) const;

  const std::function<void(const SegmentId&, int)> pin_;
  Rows rows_;
  std::set<AtTip> by_tip_;                            // all rows
  std::set<std::pair<std::uint64_t, Key>> expiries_;  // of the rows that expire
  mutable std::mutex noticed_mutex_;
  mutable std::map<std::string, Counts, std::less<>> counts_;  // by tenant
  mutable std::uint64_t noticed_ms_ = 0;                       // expiries up to then are counted
  mutable std::uint64_t expired_ = 0;                          // of all tenants
};

}  // namespace precis
