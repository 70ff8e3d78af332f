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
  // The same one after the other, without a copy.
  template <typename Fn>
  void each(std::string_view tenant, std::uint64_t now_ms, const Fn& fn) const {
    for (auto row = rows_.lower_bound({std::string(tenant), {}});
         row != rows_.end() && row->first.tenant == tenant; ++row) {
      if (!has_expired(row->second, now_ms)) fn(row->second);
    }
  }
  // These two look at those whose time has passed, which do not stay for long, and at no other.
  std::uint64_t count(std::string_view tenant, std::uint64_t now_ms) const;
  std::uint64_t count(std::uint64_t now_ms) const;
  // At most `limit` of those whose time has passed.
  std::vector<Key> expired(std::uint64_t now_ms, std::size_t limit) const;

 private:
  static bool has_expired(const msg::SessionRow& row, std::uint64_t now_ms) {
    return row.expires_unix_ms != 0 && row.expires_unix_ms <= now_ms;
  }

  std::map<Key, msg::SessionRow> rows_;
  std::map<std::string, std::uint64_t, std::less<>> counts_;  // of rows, by tenant
  std::set<std::pair<std::uint64_t, Key>> expiries_;          // of rows that expire
};

}  // namespace precis
