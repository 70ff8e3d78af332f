// The sessions (ARCHITECTURE.md, Words): named tips, and their rules. In memory only; the catalog
// stores the rows and knows the segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "precis/catalog_row.h"

namespace precis {

// ---- what a request makes of a row; nothing is kept by these

// Finds or makes: `present` is null if there is none. kInvalidArgument for a name or TTL past
// limits.
Result<msg::SessionRow> opened_session(const msg::SessionRow* present,
                                       const msg::OpenSession& request, std::uint64_t now_ms);
// A new tip is a new turn. Renews the TTL.
msg::SessionRow advanced_session(const msg::SessionRow& present, const SegmentId& tip,
                                 std::uint32_t tip_end, std::uint64_t now_ms);
// The same tip and turns under a new name, unpinned, with a TTL that begins now.
Result<msg::SessionRow> forked_session(const msg::SessionRow& present, const std::string& new_name,
                                       std::uint64_t now_ms);

// ---- the sessions there are

// Not thread-safe. A session whose time has passed is no longer found; it stays until it is erased.
// A pin lasts as long as its session: a TTL ends it too.
class Sessions {
 public:
  struct Key {
    std::string tenant, name;
    auto operator<=>(const Key&) const = default;
  };

  void put(std::string_view tenant, msg::SessionRow row);
  void erase(const Key& key);

  // Null if absent or expired.
  const msg::SessionRow* find(std::string_view tenant, std::string_view name,
                              std::uint64_t now_ms) const;
  // At most `limit` of them by name, those whose names come after `after`.
  std::vector<msg::SessionRow> page(std::string_view tenant, std::string_view after,
                                    std::size_t limit, std::uint64_t now_ms) const;
  // The tenant's with this tip, one after the other. Looks at no other.
  template <typename Fn>
  void each_at(std::string_view tenant, const SegmentId& tip, std::uint64_t now_ms,
               const Fn& fn) const {
    for (auto at = by_tip_.lower_bound(first_at(tenant, tip));
         at != by_tip_.end() && is_at(*at, tenant, tip); ++at) {
      const msg::SessionRow& row = *std::get<const msg::SessionRow*>(*at);
      if (!has_expired(row, now_ms)) fn(row);
    }
  }
  // One of them that is pinned; null if none is. Work: one look-up, however many they are.
  const msg::SessionRow* pinned_at(std::string_view tenant, const SegmentId& tip,
                                   std::uint64_t now_ms) const;
  // These two look at those whose time has passed, which do not stay for long, and at no other.
  std::uint64_t count(std::string_view tenant, std::uint64_t now_ms) const;
  std::uint64_t count(std::uint64_t now_ms) const;
  // At most `limit` of those whose time has passed.
  std::vector<Key> expired(std::uint64_t now_ms, std::size_t limit) const;

 private:
  static bool has_expired(const msg::SessionRow& row, std::uint64_t now_ms) {
    return row.expires_unix_ms != 0 && row.expires_unix_ms <= now_ms;
  }

  // Tenant and tip; unpinned; the earlier it expires the greater; the row, which stays where it is.
  // So the pinned one that lives longest is the first of its tip.
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

  Rows rows_;
  std::set<AtTip> by_tip_;                                    // all rows
  std::map<std::string, std::uint64_t, std::less<>> counts_;  // of rows, by tenant
  std::set<std::pair<std::uint64_t, Key>> expiries_;          // of rows that expire
};

}  // namespace precis
