// The parts that the command line is made of (command_line.h).
#pragma once

#include <CLI/CLI.hpp>

#include "client/cli/command_line.h"

namespace precis::cli {

CLI::App* add_command(CLI::App& group, const std::string& name, const std::string& help,
                      Arguments& args, std::function<Status(Context)> run);
CLI::App& add_group(CLI::App& app, const std::string& name, const std::string& help);
// Adds --watch to a command that only shows something.
CLI::App* add_watch(CLI::App* command, Arguments& args);
CLI::Option* add_yes(CLI::App& command, bool& yes);
void add_prefix_commands(CLI::App& app, Arguments& args);
void add_budget_commands(CLI::App& app, Arguments& args);
void add_tenant_commands(CLI::App& app, Arguments& args);
void add_backup_commands(CLI::App& app, Arguments& args);
void add_cluster_commands(CLI::App& app, Arguments& args);

}  // namespace precis::cli
