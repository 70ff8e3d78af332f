#include "client/cli/budget_application.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>

#include "client/cli/outcome.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

constexpr std::chrono::milliseconds kPollMin{5}, kPollMax{200};

// `now`: the number of the application that replaced it; 0: none did.
Status gone(std::uint64_t number, std::uint64_t now) {
  const std::string other =
      now == 0 ? "the service was restarted" : fmt::format("application {} began", now);
  return Status::not_found(
      fmt::format("{} after application {}, whose end is not known: set the budget again for what "
                  "is left",
                  other, number));
}

struct Ended {
  msg::BudgetApplication state;
  bool canceled = false;  // by Ctrl-C
};

Result<Ended> watch(Client& client, msg::BudgetApplication state) {
  const std::uint64_t number = state.number;
  std::optional<Progress> progress;
  bool canceled = false;
  for (auto poll = kPollMin; state.state == "running"; poll = std::min(2 * poll, kPollMax)) {
    if (interrupted() && !canceled) {
      PRECIS_TRY(client.cancel_application(number).status());
      canceled = true;
    }
    std::this_thread::sleep_for(poll);
    auto now = client.application();
    if (!now.ok()) {
      return now.status().with_context("the service goes on with application " +
                                       std::to_string(number));
    }
    state = std::move(*now);
    if (state.number != number) return gone(number, state.number);
    if (state.bytes == 0) continue;
    if (!progress) progress.emplace(state.dry_run ? "reading" : "trimming", state.bytes);
    progress->show(state.done_bytes, fmt::format("{} freed", bytes_text(state.freed_bytes)));
  }
  return Ended{std::move(state), canceled};
}

// "not trimmed: segments of a, b" for names that the service gives one a line.
std::string left_text(const std::string& names, std::string_view why) {
  if (names.empty()) return {};
  std::string list;
  for (const char c : names) list += c == '\n' ? std::string(", ") : std::string(1, c);
  return fmt::format("not trimmed: segments of {}, {}\n", printable(list), why);
}

std::string to_text(const msg::BudgetApplication& state) {
  std::string text = left_text(state.loss, "whose budget is a loss") +
                     left_text(state.apart, "where another budget is set");
  if (state.refused_segments > 0) {
    text += fmt::format("not trimmed: {}, the first: {}\n",
                        counted(state.refused_segments, "segment"), printable(state.refused));
  }
  return text + kept_mass_text(state.kept_mass) +
         fmt::format("{} {}: {} {}, {} left of them\n", state.dry_run ? "would trim" : "trimmed",
                     counted(state.trimmed_segments, "segment"), bytes_text(state.freed_bytes),
                     state.dry_run ? "to be freed" : "freed", bytes_text(state.stored_bytes));
}

Status outcome_of(const Ended& ended) {
  const msg::BudgetApplication& state = ended.state;
  if (state.state == "canceled") {
    return ended.canceled ? Status::canceled("interrupted")
                          : Status::conflict("the application was canceled: " + state.error);
  }
  if (state.state != "failed") return {};
  return failure(state.code, state.error);
}

}  // namespace

std::string kept_mass_words(const std::vector<double>& layers) {
  const auto lowest = std::ranges::min_element(layers);
  const double sum = std::accumulate(layers.begin(), layers.end(), 0.0);
  return fmt::format("score mass kept: {:.1f}% on average, {:.1f}% in layer {}",
                     100 * sum / static_cast<double>(layers.size()), 100 * *lowest,
                     lowest - layers.begin());
}

std::string kept_mass_text(const std::vector<double>& layers) {
  return layers.empty() ? std::string() : kept_mass_words(layers) + "\n";
}

Result<AppliedBudgets> wait_for_application(Client& client, std::uint64_t number) {
  catch_interrupts();
  PRECIS_ASSIGN(msg::BudgetApplication begun, client.application());
  if (begun.number != number) return gone(number, begun.number);
  PRECIS_ASSIGN(const Ended ended, watch(client, std::move(begun)));
  return AppliedBudgets{to_json(ended.state), to_text(ended.state), outcome_of(ended)};
}

Status show_application(Context context, bool cancel) {
  PRECIS_ASSIGN(const msg::BudgetApplication state,
                cancel ? context.client.cancel_application() : context.client.application());
  if (context.json) {
    context.out += json_text(to_json(state));
    return {};
  }
  if (state.number == 0) {
    context.out += "no change of budgets was applied since the service started\n";
    return {};
  }
  context.out += fmt::format(
      "application {} of revision {}{}: {}, {} of {} tried\n{}", state.number, state.revision,
      state.dry_run ? ", a dry run" : "",
      cancel && state.state == "running" ? "ends before its next segment" : state.state,
      count_text(state.done_segments), counted(state.segments, "segment"), to_text(state));
  if (!state.error.empty()) context.out += printable(state.error) + "\n";
  return {};
}

}  // namespace precis::cli
