// precisctl top: the service's rates, memory, disk and largest consumers, again and again.
#include <thread>

#include "client/cli/activity.h"
#include "client/cli/commands.h"
#include "client/cli/terminal.h"
#include "client/cli/watch.h"

namespace precis::cli {
namespace {

// The first frame needs two readings, and must not let the user wait.
constexpr std::chrono::milliseconds kFirstInterval{200};

}  // namespace

Status show_top(Context context, const TopOptions& options) {
  PRECIS_ASSIGN(Reading before, take_reading(context.client));
  const auto frame = [&](std::string& out) -> Status {
    PRECIS_ASSIGN(Reading now, take_reading(context.client, before.consumers.are_tenants));
    const Activity activity = activity_between(before, now);
    out = context.json
              ? json_text(to_json(activity, now))
              : activity_text(activity, now, context.columns(), options.once ? 0 : frame_lines());
    before = std::move(now);
    return {};
  };
  std::this_thread::sleep_for(options.once ? options.interval : kFirstInterval);
  return options.once ? frame(context.out) : watch(options.interval, frame);
}

}  // namespace precis::cli
