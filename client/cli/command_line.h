// The commands and options of precisctl.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "client/cli/backup_commands.h"
#include "client/cli/budget_commands.h"
#include "client/cli/cluster_commands.h"
#include "client/cli/commands.h"
#include "client/cli/rebalance.h"
#include "client/cli/tenant_commands.h"

namespace precis::cli {

// The parsed command line. The given command sets `run`.
struct Arguments {
  std::string address = "127.0.0.1:7470";
  ConnectOptions options;
  bool json = false;
  std::string name, model, keep, file;
  bool repair = false;
  bool must_serve = false;
  ListOptions list;
  ModelRemoval model_removal;
  PrefixRemoval removal;
  PrefixTrim trim;
  PrefixRetention retention;
  BudgetChange budget;
  TenantChange tenant;
  BackupOptions backup;
  NodeDrain drain;
  Rebalancing rebalancing;
  Restoration restoration;
  std::uint64_t revision = 0;
  // Optional, because 0 means before the first revision.
  std::optional<std::uint64_t> shown_revision, other_revision;
  bool cancel = false;
  std::string png;
  std::uint32_t limit = 20;
  TopOptions top;
  EventOptions events;
  std::string shell;
  std::optional<std::chrono::milliseconds> watch;  // run the command this often
  std::function<Status(Context)> run;
  std::function<Status()> alone;       // set by a command that needs no service
  std::optional<std::string> printed;  // the whole output of a command that needs no service
};

// Adds the commands and options to `app`, which stores the parsed values in `args`.
void describe(CLI::App& app, Arguments& args);
// The message for a wrong command line: what is wrong and which commands there are.
std::string misuse(const CLI::App& app, const CLI::ParseError& error);

}  // namespace precis::cli
