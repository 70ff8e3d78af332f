#include "client/cli/backup_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "client/cli/json.h"
#include "client/cli/outcome.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

constexpr std::chrono::milliseconds kPollEvery{200};

std::string copied_text(const msg::BackupState& state) {
  return fmt::format("{} of {}, {} new", bytes_text(state.done_bytes), bytes_text(state.bytes),
                     bytes_text(state.copied_bytes));
}

// Waits for the end of the backup `name`.
Result<msg::BackupState> watch_backup(Client& client, const std::string& name) {
  catch_interrupts();
  std::optional<Progress> progress;
  bool canceled = false;
  for (;;) {
    PRECIS_ASSIGN(const msg::BackupState state, client.backup());
    if (state.name != name || state.started_unix_ms == 0) {
      return Status::not_found("the service was restarted during the backup '" + name +
                               "': start it again, its values are used");
    }
    if (state.state != "running") return state;
    if (interrupted() && !canceled) {
      PRECIS_TRY(client.cancel_backup().status());
      canceled = true;
    }
    if (state.bytes > 0) {
      if (!progress) progress.emplace("backup", state.bytes);
      progress->show(state.done_bytes, copied_text(state));
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

Status outcome_of(const msg::BackupState& state) {
  if (state.state == "canceled") {
    return Status::canceled("the backup was canceled; the next one uses what it has copied");
  }
  if (!state.error.empty()) return failure(state.code, state.error);
  if (state.damaged == 0) return {};
  return Status::corruption(
      fmt::format("{} of the store failed their checks and are not in the backup:\n{}",
                  counted(state.damaged, "value"), state.damage));
}

std::string backups_text(const std::vector<msg::BackupRow>& rows, std::size_t columns) {
  Table table({{"NAME", false, 0, 20},
               {"MADE", false, 3},
               {"VALUES", true, 1},
               {"BYTES", true},
               {"NEW", true, 2},
               {"DAMAGED", true, 4},
               {"FAULT", false, 5}});
  for (const msg::BackupRow& row : rows) {
    if (!row.fault.empty()) {
      table.add({row.name, "", "", "", "", "", row.fault});
      continue;
    }
    table.add({row.name, when_text(row.created_unix_ms), count_text(row.values),
               bytes_text(row.bytes), bytes_text(row.copied_bytes), count_text(row.damaged), ""});
  }
  return table.text(columns);
}

}  // namespace

Status make_backup(Context context, const BackupOptions& options) {
  PRECIS_ASSIGN(const msg::BackupState started,
                context.client.start_backup({options.name, options.keep}));
  PRECIS_ASSIGN(const msg::BackupState ended, watch_backup(context.client, started.name));
  if (context.json) {
    context.out += json_text(to_json(ended));
  } else if (ended.state == "done") {
    context.out += fmt::format("backup {}: {} of {}, of which {} are new\n", printable(ended.name),
                               counted(ended.done_values - ended.damaged, "value"),
                               bytes_text(ended.done_bytes), bytes_text(ended.copied_bytes));
  }
  return outcome_of(ended);
}

Status list_backups(Context context) {
  PRECIS_ASSIGN(const msg::Backups backups, context.client.backups());
  context.out += context.json ? json_text(Json{{"backups", rows_json(backups.rows)}})
                              : backups_text(backups.rows, context.columns());
  return {};
}

Status cancel_backup(Context context) {
  PRECIS_ASSIGN(const msg::BackupState state, context.client.cancel_backup());
  if (context.json) {
    context.out += json_text(to_json(state));
    return {};
  }
  context.out += state.state == "running" ? fmt::format("canceling {}\n", printable(state.name))
                                          : "no backup is running\n";
  return {};
}

namespace {

// The names of the backups of a folder, whose rows are in the files NAME.rows.
Result<std::vector<std::string>> backup_names(const std::string& folder) {
  constexpr std::string_view kRows = ".rows";
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string file = at->path().filename();
    if (file.ends_with(kRows)) names.push_back(file.substr(0, file.size() - kRows.size()));
  }
  if (error == std::errc::permission_denied) return Status::denied(folder + ": " + error.message());
  if (error) return Status::not_found("the folder of backups " + folder + ": " + error.message());
  std::ranges::sort(names);
  return names;
}

std::string named_text(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() <= kNamed ? text : text + ", ...; --list lists them";
}

// precisd would refuse these, too, but without JSON and with one exit code for all.
Status check_restoration(const Restoration& options) {
  PRECIS_ASSIGN(const std::vector<std::string> names, backup_names(options.from));
  if (options.list) return {};
  if (names.empty()) return Status::not_found("there is no backup in " + options.from);
  if (!options.name.empty() && std::ranges::find(names, options.name) == names.end()) {
    return Status::not_found("there is no backup '" + options.name + "' in " + options.from +
                             "; it has " + named_text(names));
  }
  if (options.into.empty()) return {};
  std::error_code error;
  const bool is_new = !std::filesystem::exists(options.into, error) ||
                      std::filesystem::is_empty(options.into, error);
  if (error == std::errc::permission_denied) {
    return Status::denied(options.into + ": " + error.message());
  }
  if (is_new && !error) return {};
  return Status::conflict(options.into + " is not an empty directory: name a new one, or empty it");
}

}  // namespace

Status restore(const Restoration& options) {
  PRECIS_TRY(check_restoration(options));
  std::vector<std::string> words{"precisd", "--restore", options.from};
  if (!options.name.empty()) words.insert(words.end(), {"--backup", options.name});
  if (!options.into.empty()) words.insert(words.end(), {"--data", options.into});
  if (options.list) words.emplace_back("--list");
  if (options.dry_run) words.emplace_back("--dry-run");
  if (options.json) words.emplace_back("--json");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  ::execv((self.parent_path() / "precisd").c_str(), pointers.data());
  ::execvp("precisd", pointers.data());
  return Status::not_found(fmt::format(
      "precisd is neither beside precisctl nor in the PATH ({}): restore runs on the host of the "
      "service",
      std::generic_category().message(errno)));
}

}  // namespace precis::cli
