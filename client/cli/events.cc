// precisctl events: what becomes of stored segments.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <thread>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/outcome.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"

namespace precis::cli {
namespace {

constexpr std::chrono::milliseconds kPoll{200};

std::string event_text(const msg::KvEvent& row) {
  using Kind = msg::KvEvent::Kind;
  constexpr const char* kCauses[] = {"asked for", "no room",      "damaged",
                                     "dropped",   "consolidated", "moved"};
  if (row.kind == Kind::kLost) {
    return row.lost == 0 ? "lost    the service was started again"
                         : fmt::format("lost    {} events, which are no longer kept", row.lost);
  }
  const std::string what = fmt::format("{:%F %T}  {}  tokens {} to {}  ",
                                       fmt::localtime(static_cast<std::time_t>(row.unix_ms / 1000)),
                                       row.segment.hex(), row.begin, row.end);
  switch (row.kind) {
    case Kind::kTrimmed:
      return fmt::format("trimmed {}{} from {}, keep {}", what, bytes_text(row.stored_bytes),
                         bytes_text(row.bytes_before), row.keep.to_string());
    case Kind::kRemoved:
      return fmt::format("removed {}{}, {}", what, bytes_text(row.bytes_before),
                         kCauses[static_cast<std::size_t>(row.cause)]);
    default:
      return fmt::format("stored  {}{}, keep {}", what, bytes_text(row.stored_bytes),
                         row.keep.to_string());
  }
}

// A line per event, so that tools can read them one by one.
std::string lines_of(const std::vector<msg::KvEvent>& rows, bool json) {
  std::string lines;
  for (const msg::KvEvent& row : rows) {
    lines += (json ? json_line(to_json(row)) : event_text(row)) + "\n";
  }
  return lines;
}

}  // namespace

Status show_events(Context context, const EventOptions& options) {
  msg::ListEvents request;
  request.position = options.after;
  if (options.follow) catch_interrupts();
  while (true) {
    PRECIS_ASSIGN(const msg::Events page, context.client.events(request));
    request.position = page.next;
    // After a gap, the service would list all stored segments. A person wants the events that are
    // left.
    if (!page.rows.empty() && page.rows.back().kind == msg::KvEvent::Kind::kLost) {
      request.position = "oldest";
    }
    PRECIS_TRY(write_output(lines_of(page.rows, context.json)));
    if (options.follow && interrupted()) return {};
    if (!page.rows.empty()) continue;
    if (!options.follow) return {};
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace precis::cli
