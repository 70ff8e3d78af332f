// precisctl prefix trim: trims one segment, or a whole prefix from the root on.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "precis/keep.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

struct Done {
  std::vector<std::pair<SegmentId, msg::Trimmed>> trimmed;
  std::vector<SegmentId> unchanged;                // of `trimmed`: stored no more than `keep`
  std::vector<std::pair<SegmentId, Status>> left;  // refused: they store less than `keep`
  msg::Trimmed sum;
};

Result<std::vector<msg::SegmentInfo>> segments_of(Client& client, const SegmentId& tip,
                                                  bool whole) {
  std::vector<msg::SegmentInfo> segments;
  SegmentId id = tip;
  do {
    PRECIS_ASSIGN(msg::SegmentInfo info, client.segment(id));
    id = info.parent;
    segments.push_back(std::move(info));
  } while (whole && !id.is_null());
  std::ranges::reverse(segments);
  return segments;
}

Result<Done> trim_all(Client& client, const std::vector<msg::SegmentInfo>& segments,
                      const Budget& keep, Durability durability, bool dry_run) {
  std::uint64_t total = 0, seen = 0;
  for (const msg::SegmentInfo& segment : segments) total += segment.stored_bytes;
  Progress progress("trimming", total);
  Done done;
  for (const msg::SegmentInfo& segment : segments) {
    auto trimmed = client.trim_segment(segment.id, keep, durability, dry_run);
    if (trimmed.status().code() == StatusCode::kConflict) {
      done.left.emplace_back(segment.id, trimmed.status());
    } else {
      PRECIS_TRY(trimmed.status());
      done.trimmed.emplace_back(segment.id, *trimmed);
      if (trimmed->entries == segment.entries) done.unchanged.push_back(segment.id);
      done.sum.entries += trimmed->entries;
      done.sum.stored_bytes += trimmed->stored_bytes;
      done.sum.freed_bytes += trimmed->freed_bytes;
    }
    seen += segment.stored_bytes;
    progress.show(seen, fmt::format("{} freed", bytes_text(done.sum.freed_bytes)));
  }
  if (done.trimmed.empty()) return done.left.front().second;
  return done;
}

Json numbers(const msg::Trimmed& trimmed) {
  return {{"entries", trimmed.entries},
          {"stored_bytes", trimmed.stored_bytes},
          {"freed_bytes", trimmed.freed_bytes}};
}

Json to_json(const Done& done, bool dry_run) {
  Json json = numbers(done.sum);
  json["dry_run"] = dry_run;
  json["segments"] = Json::array();
  for (const auto& [id, trimmed] : done.trimmed) {
    Json row = {{"segment", id.hex()}};
    row.update(numbers(trimmed));
    json["segments"].push_back(std::move(row));
  }
  json["left"] = Json::array();
  for (const auto& [id, why] : done.left) {
    json["left"].push_back({{"segment", id.hex()}, {"why", why.message()}});
  }
  return json;
}

}  // namespace

Status trim_prefix(Context context, const PrefixTrim& how) {
  PRECIS_ASSIGN(const Budget keep, parse_keep(how.keep));
  PRECIS_ASSIGN(const Durability durability, parse_durability(how.durability));
  PRECIS_ASSIGN(const SegmentId tip, find_segment(context.client, how.id));
  PRECIS_ASSIGN(const auto segments, segments_of(context.client, tip, how.whole));
  PRECIS_ASSIGN(const Done done, trim_all(context.client, segments, keep, durability, how.dry_run));
  if (context.json) {
    context.out += json_text(to_json(done, how.dry_run));
    return {};
  }
  for (const auto& [id, why] : done.left) {
    context.out += fmt::format("not trimmed: {}\n", printable(why.message()));
  }
  for (const SegmentId& id : done.unchanged) {
    context.out +=
        fmt::format("not trimmed: segment {} already keeps at most {}\n", id.hex(), how.keep);
  }
  context.out +=
      fmt::format("{} {}: {} {}, {} left\n", how.dry_run ? "would trim" : "trimmed",
                  counted(done.trimmed.size() - done.unchanged.size(), "segment"),
                  bytes_text(done.sum.freed_bytes), how.dry_run ? "to be freed" : "freed",
                  bytes_text(done.sum.stored_bytes));
  return {};
}

}  // namespace precis::cli
