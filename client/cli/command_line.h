// The commands and options of precisctl.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "client/cli/commands.h"

namespace precis::cli {

// The parsed command line. The given command sets `run`.
struct Arguments {
  std::string address = "127.0.0.1:7470";
  ConnectOptions options;
  bool json = false;
  std::string name, model, recipe, keep, file;
  std::uint32_t limit = 1000;
  bool recursive = false, unset = false, repair = false;
  PrefixTrim trim;
  std::function<Status(Context)> run;
};

// Adds the commands and options to `app`, which stores the parsed values in `args`.
void describe(CLI::App& app, Arguments& args);
// The message for a wrong command line: what is wrong and which commands there are.
std::string misuse(const CLI::App& app, const CLI::ParseError& error);

}  // namespace precis::cli
