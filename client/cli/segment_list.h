// The rows of `prefix ls`: chosen, sorted and limited in number, with their totals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/segment_filter.h"

namespace precis::cli {

enum class SegmentOrder : std::uint8_t {
  kCreated,
  kUsed,
  kBytes,
  kTokens,
  kHits,
  kKeep,
  kPriority
};
inline const std::vector<std::string> kSegmentOrders = {"created", "used", "bytes",   "tokens",
                                                        "hits",    "keep", "priority"};
// One of kSegmentOrders.
SegmentOrder parse_order(const std::string& name);

struct SegmentTotals {
  std::uint64_t segments = 0, stored_bytes = 0, original_bytes = 0, hits = 0;
  void add(const msg::SegmentInfo& row);
};

struct SegmentList {
  std::vector<msg::SegmentInfo> rows;
  SegmentTotals listed;
  // The totals of all chosen segments; none if the list ended before all were read.
  std::optional<SegmentTotals> chosen;
};

struct ListOptions {
  SegmentFilter filter;
  SegmentOrder order = SegmentOrder::kCreated;  // the largest first: the newest, the most hits, ...
  bool reverse = false;
  std::uint32_t limit = 1000;  // the most rows
  bool all = false;            // no limit
};

// Holds at most `limit` rows. The order of creation is the service's own, so it reads only as many
// pages as it lists; every other order reads all. Errors are those of each_segment().
Result<SegmentList> list_segments(Client& client, const ListOptions& options);

// {"prefixes": rows, "listed": totals, "matching": totals or null}
std::string segment_list_json(const SegmentList& list);
// The last lines of the table: the totals, and whether more segments match.
std::string totals_text(const SegmentList& list);

}  // namespace precis::cli
