#include "client/cli/watch.h"

#include <fmt/format.h>

#include <optional>

#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

constexpr std::size_t kHintLines = 2;  // above every frame on a terminal

}  // namespace

Result<std::chrono::milliseconds> parse_interval(const std::string& text,
                                                 const std::string& option) {
  const std::optional<double> ms = parse_ms(text, {"", "s", "ms"});
  if (!ms || !(*ms >= 100 && *ms <= 3'600'000)) {
    return Status::invalid(option + " is '" + text +
                           "', must be seconds such as 2 or 0.5, from 0.1 to 3600");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(*ms));
}

Status watch(std::chrono::milliseconds interval, const std::function<Status(std::string&)>& frame) {
  const Screen screen;
  const std::string hint =
      fmt::format("every {:g} s; q ends it\n\n", static_cast<double>(interval.count()) / 1e3);
  for (bool first = true;; first = false) {
    std::string text;
    const Status status = frame(text);
    if (!status.ok() && (first || !screen.is_live())) return status;
    if (!status.ok()) text = "precisctl: " + printable_lines(status.message()) + "\n";
    PRECIS_TRY(screen.show(screen.is_live() ? hint + text : first ? text : "\n" + text));
    if (!screen.wait(interval)) return {};
  }
}

std::size_t frame_lines() {
  const std::size_t rows = output_rows();
  if (rows == 0) return 0;
  constexpr std::size_t kOthers = kHintLines + 1;  // the cursor has the last row
  return rows > kOthers ? rows - kOthers : 1;
}

}  // namespace precis::cli
