// precisctl fsck: reads and checks the records of the tenant's segments, one after the other, while
// the service keeps running.
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/recovery.h"
#include "client/cli/table.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

struct Damaged {
  msg::SegmentInfo segment;
  std::string damage;
};

struct Found {
  std::string tenant;  // that owns these segments
  // Sizes as written, of undamaged segments: those without a damaged ancestor, and those with one
  // (`fallen`).
  std::uint64_t segments = 0, bytes = 0;
  std::uint64_t fallen_segments = 0, fallen_bytes = 0;
  std::vector<Damaged> damaged;
  std::vector<Damaged> unread;  // could not be read for now, and why
  Recovery recovery;
};

// The damaged segments and their descendants.
std::set<SegmentId> all_on_damaged(const std::vector<msg::SegmentInfo>& rows,
                                   const std::vector<Damaged>& damaged) {
  std::set<SegmentId> all;
  for (const Damaged& each : damaged) all.insert(each.segment.id);
  for (bool grew = !all.empty(); grew;) {
    grew = false;
    for (const msg::SegmentInfo& row : rows) {
      if (all.contains(row.parent)) grew |= all.insert(row.id).second;
    }
  }
  return all;
}

Result<Found> check_all(Client& client) {
  PRECIS_ASSIGN(const auto rows, client.segments({}, std::numeric_limits<std::uint32_t>::max()));
  std::uint64_t total = 0, done = 0;
  for (const msg::SegmentInfo& row : rows) total += row.stored_bytes;
  Progress progress("checking", total);
  Found found;
  PRECIS_ASSIGN(const msg::ServerStatus status, client.status());
  found.recovery = recovery_of(status);
  found.tenant = status.tenant;
  std::vector<msg::SegmentInfo> whole;
  for (const msg::SegmentInfo& row : rows) {
    const auto checked = client.check_segment(row.id);
    done += row.stored_bytes;
    if (checked.status().code() == StatusCode::kNotFound) continue;  // removed meanwhile
    // The service had no memory or no time to read it.
    const StatusCode code = checked.status().code();
    if (code == StatusCode::kRejected || code == StatusCode::kTimedOut) {
      found.unread.push_back({row, checked.status().message()});
      continue;
    }
    PRECIS_TRY(checked.status());
    if (checked->damage.empty()) {
      whole.push_back(row);
    } else {
      found.damaged.push_back({row, checked->damage});
    }
    progress.show(done, fmt::format("{} of {}, {} damaged", bytes_text(done), bytes_text(total),
                                    found.damaged.size()));
  }
  const auto fallen = all_on_damaged(rows, found.damaged);
  for (const msg::SegmentInfo& row : whole) {
    const bool fell = fallen.contains(row.id);
    (fell ? found.fallen_segments : found.segments) += 1;
    (fell ? found.fallen_bytes : found.bytes) += row.stored_bytes;
  }
  return found;
}

// Also removes their descendants, which were computed over the damaged entries.
Result<msg::Removed> remove_all(Client& client, const std::vector<Damaged>& damaged) {
  msg::Removed all;
  for (const Damaged& each : damaged) {
    const auto removed = client.remove_segment(each.segment.id, /*recursive=*/true);
    if (removed.status().code() == StatusCode::kNotFound) continue;  // removed with its ancestor
    PRECIS_TRY(removed.status());
    all.segments += removed->segments;
    all.bytes += removed->bytes;
  }
  return all;
}

Json list_of(const std::vector<Damaged>& segments, const char* what) {
  Json list = Json::array();
  for (const Damaged& each : segments) {
    list.push_back({{"segment", each.segment.id.hex()}, {what, each.damage}});
  }
  return list;
}

Json to_json(const Found& found, const msg::Removed& removed) {
  return {{"tenant", found.tenant},
          {"whole_segments", found.segments},
          {"whole_bytes", found.bytes},
          {"damaged", list_of(found.damaged, "damage")},
          {"on_damaged_segments", found.fallen_segments},
          {"on_damaged_bytes", found.fallen_bytes},
          {"unread", list_of(found.unread, "why")},
          {"recovery", precis::cli::to_json(found.recovery)},
          {"removed", precis::cli::to_json(removed)}};
}

std::string to_text(const Found& found, const msg::Removed& removed) {
  std::string text = fmt::format("tenant {}: {}, {}: whole\n", printable(found.tenant),
                                 counted(found.segments, "segment"), bytes_text(found.bytes));
  for (const Damaged& each : found.damaged)
    text += fmt::format("damaged: {}\n", printable(each.damage));
  if (found.fallen_segments > 0) {
    text += fmt::format("{}, {}: whole, but with a damaged ancestor\n",
                        counted(found.fallen_segments, "segment"), bytes_text(found.fallen_bytes));
  }
  for (const Damaged& each : found.unread) {
    text += fmt::format("not read: {}: {}\n", each.segment.id.hex(), printable(each.damage));
  }
  if (found.recovery.doubtful) {
    text += fmt::format("missing: {}\n", recovery_text(found.recovery));
  }
  if (removed.segments > 0) {
    text += fmt::format("removed {}, {}: the damaged segments and their descendants\n",
                        counted(removed.segments, "segment"), bytes_text(removed.bytes));
  }
  return text;
}

// Damage comes first: a script that acts on the status must not mistake damage for a service that
// does not answer.
Status verdict(const Found& found, bool repaired) {
  std::string unread;
  if (!found.unread.empty()) {
    unread =
        fmt::format("{} could not be read for now: run fsck again when the service is less busy",
                    counted(found.unread.size(), "segment"));
  }
  if (!found.damaged.empty() && !repaired) {
    return Status::corruption(fmt::format(
        "of {} {} damaged and {} a damaged ancestor; all of these are out of service. Put the "
        "damaged segments again to restore them, or remove them and their descendants with "
        "fsck --repair{}{}",
        counted(found.damaged.size() + found.fallen_segments + found.segments, "segment"),
        found.damaged.size() == 1 ? "1 is" : fmt::format("{} are", found.damaged.size()),
        found.fallen_segments == 1 ? "1 has" : fmt::format("{} have", found.fallen_segments),
        unread.empty() ? "" : "; ", unread));
  }
  if (found.recovery.doubtful) {
    const std::string missing = recovery_text(found.recovery);
    return Status::corruption(unread.empty() ? missing : missing + "; " + unread);
  }
  return unread.empty() ? Status() : Status::timed_out(unread);
}

}  // namespace

Status check_store(Context context, bool repair) {
  PRECIS_ASSIGN(const Found found, check_all(context.client));
  msg::Removed removed;
  if (repair) {
    PRECIS_ASSIGN(removed, remove_all(context.client, found.damaged));
  }
  context.out += context.json ? json_text(to_json(found, removed)) : to_text(found, removed);
  return verdict(found, repair);
}

}  // namespace precis::cli
