#include "client/cli/segment_filter.h"

#include <utility>

#include "client/cli/find.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/keep.h"

namespace precis::cli {
namespace {

Status each_of_session(Client& client, const SegmentFilter& filter, std::uint64_t now_ms,
                       const std::optional<Digest>& model,
                       const std::function<bool(msg::SegmentInfo)>& visit) {
  PRECIS_ASSIGN(const msg::SessionRow session, find_session(client, filter.session));
  for (SegmentId id = session.tip; !id.is_null() && !interrupted();) {
    PRECIS_ASSIGN(msg::SegmentInfo row, client.segment(id));
    id = row.parent;
    row.plan.reset();
    if (model && row.model != *model) break;
    if (filter.accepts(row, now_ms) && !visit(std::move(row))) break;
  }
  return {};
}

}  // namespace

bool SegmentFilter::accepts(const msg::SegmentInfo& row, std::uint64_t now_ms) const {
  return (!unused_ms || used_unix_ms(row) + *unused_ms <= now_ms) &&
         (!larger_bytes || row.stored_bytes > *larger_bytes);
}

Result<std::uint64_t> parse_age(const std::string& text, const std::string& option) {
  constexpr double kMost = 1e12;  // 31 years
  const std::optional<double> ms = parse_ms(text, {"s", "m", "h", "d", "w"});
  if (!ms || !(*ms >= 0 && *ms <= kMost)) {
    return Status::invalid(option + " is '" + text +
                           "', must be an age such as 7d, with one of the units s, m, h, d and w");
  }
  return static_cast<std::uint64_t>(*ms);
}

Result<std::uint64_t> parse_bytes(const std::string& text, const std::string& option) {
  const auto size = parse_keep(text, option);
  if (size.ok() && size->kind == Budget::Kind::kBytes) return size->value;
  return Status::invalid(option + " is '" + text + "', must be a size such as 1GiB or 64 MiB");
}

std::uint64_t used_unix_ms(const msg::SegmentInfo& row) {
  return row.last_used_unix_ms > 0 ? row.last_used_unix_ms : row.created_unix_ms;
}

Status each_segment(Client& client, const SegmentFilter& filter,
                    const std::function<bool(msg::SegmentInfo)>& visit) {
  const std::uint64_t now_ms = now_unix_ms();
  PRECIS_ASSIGN(const std::optional<Digest> model, model_scope(client, filter.model));
  if (!filter.session.empty()) {
    PRECIS_TRY(each_of_session(client, filter, now_ms, model, visit));
  } else {
    msg::ListPrefixes request{model};
    do {
      PRECIS_ASSIGN(msg::Segments page, client.segments_page(request));
      for (msg::SegmentInfo& row : page.rows) {
        if (filter.accepts(row, now_ms) && !visit(std::move(row))) return {};
      }
      request.after = std::move(page.next);
    } while (!request.after.empty() && !interrupted());
  }
  return interrupted() ? Status::canceled("interrupted") : Status();
}

}  // namespace precis::cli
