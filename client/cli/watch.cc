#include "client/cli/watch.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {

Result<std::chrono::milliseconds> parse_interval(const std::string& text,
                                                 const std::string& option) {
  const char* const last = text.data() + text.size();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  const double ms = unit == "ms" ? number : number * 1000;
  const bool known = unit.empty() || unit == "s" || unit == "ms";
  if (error != std::errc() || !known || !(ms >= 100 && ms <= 3'600'000)) {
    return Status::invalid(option + " is '" + text +
                           "', must be seconds such as 2 or 0.5, from 0.1 to 3600");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(ms));
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

}  // namespace precis::cli
