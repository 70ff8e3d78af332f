// precisctl prefix set: sets how long a segment, or a whole prefix, is worth keeping.
#include <fmt/format.h>

#include <vector>

#include "client/cli/commands.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/table.h"

namespace precis::cli {
namespace {

std::string retention_text(const PrefixRetention& how) {
  std::vector<std::string> parts;
  if (how.priority) parts.push_back(fmt::format("priority {}", *how.priority));
  if (how.ttl_s) {
    const double seconds = static_cast<double>(*how.ttl_s);
    parts.push_back(*how.ttl_s == 0 ? "no ttl" : "ttl " + duration_text(seconds));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

Status set_retention(Context context, const PrefixRetention& how) {
  if (!how.priority && !how.ttl_s) {
    return Status::invalid("there is nothing to set: give --priority, --ttl or both");
  }
  PRECIS_ASSIGN(SegmentId id, find_segment(context.client, how.id));
  std::vector<msg::SegmentInfo> changed;
  do {
    PRECIS_ASSIGN(msg::SegmentInfo now,
                  context.client.set_retention({id, how.priority, how.ttl_s}));
    id = now.parent;
    changed.push_back(std::move(now));
  } while (how.whole && !id.is_null());
  context.out += context.json ? json_text(Json{{"prefixes", rows_json(changed)}})
                              : fmt::format("{}: {}\n", counted(changed.size(), "segment"),
                                            retention_text(how));
  return {};
}

}  // namespace precis::cli
