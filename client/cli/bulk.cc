#include "client/cli/bulk.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {

ChosenSegment chosen_of(const msg::SegmentInfo& row) {
  return {row.id, row.parent, row.begin, row.children, row.entries, row.stored_bytes};
}

Status check_choice(const std::string& id, const SegmentFilter& filter) {
  if (id.empty() != filter.chooses_all()) return {};
  return Status::invalid(
      id.empty() ? "give the id of a prefix, or choose some by --model, --session, --unused or "
                   "--larger"
                 : "give either the id of a prefix, or --model, --session, --unused or --larger");
}

Result<Chosen> choose(Client& client, const SegmentFilter& filter) {
  Chosen chosen;
  PRECIS_TRY(each_segment(client, filter, [&](const msg::SegmentInfo& row) {
    chosen.more = chosen.segments.size() == kChosenMax;
    if (chosen.more) return false;
    chosen.segments.push_back(chosen_of(row));
    chosen.stored_bytes += row.stored_bytes;
    return true;
  }));
  // A child begins where its parent ends, so this puts parents first.
  std::ranges::stable_sort(chosen.segments, {}, &ChosenSegment::begin);
  return chosen;
}

std::size_t keep_parents(Chosen& chosen) {
  std::unordered_map<SegmentId, std::uint32_t> children;  // chosen ones, by parent
  const auto stays = [&](const ChosenSegment& segment) {
    const auto known = children.find(segment.id);
    return segment.children > (known == children.end() ? 0 : known->second);
  };
  std::vector<ChosenSegment> going;
  chosen.stored_bytes = 0;
  for (auto at = chosen.segments.rbegin(); at != chosen.segments.rend(); ++at) {
    const ChosenSegment& segment = *at;
    if (stays(segment)) continue;
    ++children[segment.parent];
    chosen.stored_bytes += segment.stored_bytes;
    going.push_back(segment);
  }
  const std::size_t kept = chosen.segments.size() - going.size();
  chosen.segments.assign(going.rbegin(), going.rend());
  return kept;
}

std::string chosen_text(const Chosen& chosen) {
  return fmt::format("{}, {}", counted(chosen.segments.size(), "segment"),
                     bytes_text(chosen.stored_bytes));
}

Json left_json(const std::vector<LeftSegment>& left) {
  Json list = Json::array();
  for (const LeftSegment& each : left) {
    list.push_back({{"segment", each.id.hex()}, {"why", each.why.message()}});
  }
  return list;
}

std::string left_text(const std::vector<LeftSegment>& left, const char* verb) {
  if (left.empty()) return {};
  return fmt::format("not {}: {}{}\n", verb,
                     left.size() == 1 ? "" : counted(left.size(), "segment") + ", the first: ",
                     printable(left.front().why.message()));
}

Removal remove_chosen(Client& client, const Chosen& chosen, const SegmentFilter& filter,
                      bool recursive) {
  Removal removal;
  Progress progress("removing", chosen.segments.size());
  const std::uint64_t now_ms = now_unix_ms();
  const auto remove = [&](const SegmentId& id) -> Status {
    if (filter.unused_ms) {
      PRECIS_ASSIGN(const msg::SegmentInfo row, client.find_segment(id.hex()));
      if (!filter.accepts(row, now_ms)) return {};
    }
    PRECIS_ASSIGN(const msg::Removed removed, client.remove_segment(id, recursive));
    removal.segments += removed.segments;
    removal.bytes += removed.bytes;
    return {};
  };
  std::uint64_t done = 0;
  for (auto at = chosen.segments.rbegin(); at != chosen.segments.rend(); ++at) {
    const ChosenSegment& segment = *at;
    if (interrupted()) {
      removal.status = Status::canceled("interrupted");
      break;
    }
    const Status status = remove(segment.id);
    if (status.code() == StatusCode::kConflict) {
      removal.left.push_back({segment.id, status});
    } else if (!status.ok() && status.code() != StatusCode::kNotFound) {
      removal.status = status;
      break;
    }
    ++done;
    progress.show(
        done, fmt::format("{} of {}, {} freed", count_text(done),
                          counted(chosen.segments.size(), "segment"), bytes_text(removal.bytes)));
  }
  if (removal.status.ok() && removal.segments == 0 && !removal.left.empty()) {
    removal.status = removal.left.front().why;
  }
  return removal;
}

}  // namespace precis::cli
