#include "client/cli/segment_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "client/cli/json.h"
#include "client/cli/table.h"

namespace precis::cli {
namespace {

double sort_value(const msg::SegmentInfo& row, SegmentOrder order) {
  switch (order) {
    case SegmentOrder::kCreated: return static_cast<double>(row.created_unix_ms);
    case SegmentOrder::kUsed: return static_cast<double>(row.last_used_unix_ms);
    case SegmentOrder::kBytes: return static_cast<double>(row.stored_bytes);
    case SegmentOrder::kTokens: return static_cast<double>(row.end - row.begin);
    case SegmentOrder::kHits: return static_cast<double>(row.hits);
    case SegmentOrder::kPriority: return row.priority;
    case SegmentOrder::kKeep:  // budgets of different kinds are compared by the share they keep
      return row.original_bytes == 0
                 ? 0
                 : static_cast<double>(row.stored_bytes) / static_cast<double>(row.original_bytes);
  }
  return 0;
}

Json to_json(const SegmentTotals& totals) {
  return {{"segments", totals.segments},
          {"stored_bytes", totals.stored_bytes},
          {"original_bytes", totals.original_bytes},
          {"hits", totals.hits}};
}

}  // namespace

SegmentOrder parse_order(const std::string& name) {
  const auto at = std::ranges::find(kSegmentOrders, name);
  PRECIS_CHECK(at != kSegmentOrders.end());
  return static_cast<SegmentOrder>(at - kSegmentOrders.begin());
}

void SegmentTotals::add(const msg::SegmentInfo& row) {
  ++segments;
  stored_bytes += row.stored_bytes;
  original_bytes += row.original_bytes;
  hits += row.hits;
}

Result<SegmentList> list_segments(Client& client, const ListOptions& options) {
  const std::size_t most = options.all ? std::numeric_limits<std::size_t>::max() : options.limit;
  // A session's chain is in this order too, because children are stored after their parents.
  const bool as_read = options.order == SegmentOrder::kCreated && !options.reverse;
  const auto before = [&](const msg::SegmentInfo& a, const msg::SegmentInfo& b) {
    const double of_a = sort_value(a, options.order), of_b = sort_value(b, options.order);
    if (of_a != of_b) return options.reverse ? of_a < of_b : of_a > of_b;
    return a.id < b.id;
  };
  SegmentList list;
  SegmentTotals chosen;
  bool cut_short = false;
  PRECIS_TRY(each_segment(client, options.filter, [&](msg::SegmentInfo row) {
    cut_short = as_read && list.rows.size() == most;
    if (cut_short) return false;
    chosen.add(row);
    list.rows.push_back(std::move(row));
    if (as_read) return true;
    // A heap whose first row is the last of the list.
    std::ranges::push_heap(list.rows, before);
    if (list.rows.size() > most) {
      std::ranges::pop_heap(list.rows, before);
      list.rows.pop_back();
    }
    return true;
  }));
  if (!as_read) std::ranges::sort_heap(list.rows, before);
  for (const msg::SegmentInfo& row : list.rows) list.listed.add(row);
  if (!cut_short) list.chosen = chosen;
  return list;
}

std::string segment_list_json(const SegmentList& list) {
  return json_text(Json{{"prefixes", rows_json(list.rows)},
                        {"listed", to_json(list.listed)},
                        {"matching", list.chosen ? to_json(*list.chosen) : Json()}});
}

std::string totals_text(const SegmentList& list) {
  const auto sizes = [](const SegmentTotals& totals) {
    return fmt::format("{}: {} stored, {} of {}; {}", counted(totals.segments, "segment"),
                       bytes_text(totals.stored_bytes),
                       percent_text(totals.stored_bytes, totals.original_bytes),
                       bytes_text(totals.original_bytes), counted(totals.hits, "hit"));
  };
  std::string text = sizes(list.listed) + "\n";
  if (!list.chosen) {
    text += "more segments match: see --limit and --all\n";
  } else if (list.chosen->segments > list.listed.segments) {
    text += "of all that match, " + sizes(*list.chosen) + "; see --limit and --all\n";
  }
  return text;
}

}  // namespace precis::cli
