#include "client/cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "client/cli/cluster_commands.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/recovery.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "precis/keep.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

// Why the service refuses some gets or puts.
Status check_serving(const msg::ServerStatus& status, const msg::ClusterState& cluster) {
  if (!status.disk_fault.empty()) return Status::internal(status.disk_fault);
  if (status.disk_low) {
    return Status::out_of_space("puts are refused: the disk is short of free space");
  }
  return check_member(cluster);
}

}  // namespace

Status show_status(Context context, bool must_serve) {
  PRECIS_ASSIGN(const msg::ServerStatus status, context.client.status());
  const auto asked = context.client.cluster();
  if (must_serve) PRECIS_TRY(asked.status());
  const msg::ClusterState cluster = asked.ok() ? *asked : msg::ClusterState();
  if (context.json) {
    Json json = to_json(status);
    if (!cluster.name.empty()) {
      json["cluster"] = {{"name", cluster.name},
                         {"node", cluster.node},
                         {"state", cluster.state},
                         {"error", cluster.error}};
    } else if (!asked.ok()) {
      json["cluster"] = {{"error", asked.status().message()}};
    }
    context.out += json_text(json);
  } else {
    PRECIS_ASSIGN(const msg::Stats stats, context.client.stats());
    context.out += status_text(status, disk_use(stats));
    const Recovery recovery = recovery_of(status);
    if (recovery.doubtful) context.out += "WARNING: " + recovery_text(recovery) + "\n";
    if (!asked.ok()) {
      context.out +=
          "WARNING: the cluster's state is not known: " + printable(asked.status().message()) +
          "\n";
    }
    if (const Status member = check_member(cluster); !member.ok()) {
      context.out += "WARNING: " + printable(member.message()) + "\n";
    }
  }
  return must_serve ? check_serving(status, cluster) : Status();
}

Status list_models(Context context) {
  PRECIS_ASSIGN(const auto rows, context.client.models());
  context.out += context.json ? json_text(Json{{"models", rows_json(rows)}})
                              : models_text(rows, context.columns());
  return {};
}

Status list_prefixes(Context context, const ListOptions& options) {
  PRECIS_ASSIGN(const SegmentList list, list_segments(context.client, options));
  if (context.json) {
    context.out += segment_list_json(list);
    return {};
  }
  if (list.rows.empty() && !options.filter.chooses_all()) {
    context.out += "no prefix matches\n";
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  context.out += segments_text(list.rows, models, context.columns());
  if (!list.rows.empty()) context.out += totals_text(list);
  return {};
}

Status show_prefix(Context context, const std::string& id) {
  PRECIS_ASSIGN(const SegmentId segment, find_segment(context.client, id));
  PRECIS_ASSIGN(const msg::SegmentInfo row, context.client.segment(segment));
  if (context.json) {
    context.out += json_text(to_json(row));
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  context.out += segment_text(row, models, context.columns());
  return {};
}

Status list_sessions(Context context) {
  PRECIS_ASSIGN(const auto rows, context.client.sessions());
  context.out += context.json ? json_text(Json{{"sessions", rows_json(rows)}})
                              : sessions_text(rows, context.columns());
  return {};
}

Status show_session(Context context, const std::string& name) {
  PRECIS_ASSIGN(const msg::SessionRow row, find_session(context.client, name));
  Json json = to_json(row);
  std::string takes;
  if (row.total) {
    SegmentFilter filter;
    filter.session = name;
    std::uint64_t stored = 0, full = 0;
    PRECIS_TRY(each_segment(context.client, filter, [&](const msg::SegmentInfo& segment) {
      stored += segment.stored_bytes;
      full += segment.original_bytes;
      return true;
    }));
    json["stored_bytes"] = stored;
    json["original_bytes"] = full;
    takes = bytes_text(stored) + " of " + bytes_text(full);
  }
  context.out += context.json ? json_text(json) : session_text(row, takes);
  return {};
}

namespace {

Result<Budget> parse_total(const std::string& text) {
  if (text == "none") return Budget::all();
  const auto total = parse_keep(text);  // whose error offers forms that only a put takes
  if (total.ok() && total->kind != Budget::Kind::kEntries && total->kind != Budget::Kind::kLoss) {
    return total;
  }
  return Status::invalid("--total '" + text +
                         "': give a share of the full KV in (0, 1] such as 0.2 or 20%, bytes such "
                         "as 64MiB, or none");
}

}  // namespace

Status set_session(Context context, const std::string& name, const std::string& total) {
  PRECIS_ASSIGN(const Budget most, parse_total(total));
  PRECIS_TRY(find_session(context.client, name).status());
  PRECIS_ASSIGN(const msg::SessionRow row, context.client.open_session(name, {}, most));
  context.out += context.json ? json_text(to_json(row)) : session_text(row);
  return {};
}

Status pin_session(Context context, const std::string& name, bool pinned) {
  PRECIS_TRY(find_session(context.client, name).status());
  PRECIS_ASSIGN(const msg::SessionRow row, context.client.pin_session(name, pinned));
  context.out += context.json ? json_text(to_json(row)) : session_text(row);
  return {};
}

Status remove_session(Context context, const std::string& name) {
  PRECIS_TRY(find_session(context.client, name).status());
  PRECIS_TRY(context.client.remove_session(name));
  context.out += context.json ? json_text(Json{{"removed", name}})
                              : fmt::format("removed session {}\n", printable(name));
  return {};
}

Status show_stats(Context context) {
  PRECIS_ASSIGN(const msg::Stats stats, context.client.stats());
  context.out += context.json ? json_text(to_json(stats)) : stats_text(stats, context.columns());
  return {};
}

}  // namespace precis::cli
