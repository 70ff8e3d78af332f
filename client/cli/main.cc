// precisctl: inspects a running precisd and changes its live settings.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "client/cli/command_line.h"
#include "client/cli/outcome.h"
#include "client/cli/terminal.h"
#include "client/cli/watch.h"

namespace {

using namespace precis::cli;
using precis::Status;

int run(const Arguments& args) {
  std::string out;
  if (args.alone) return finish(args.alone(), out, args.json);
  if (args.printed) return finish({}, *args.printed, args.json);
  precis::ConnectOptions options = args.options;
  if (args.repair) options.client_name += " fsck --repair";  // marks its removals in an audit log
  auto client = precis::Client::connect(args.address, options);
  if (!client.ok()) return finish(client.status(), out, args.json);
  const char* const wanted = std::getenv("COLUMNS");
  const std::size_t columns = wanted ? std::strtoul(wanted, nullptr, 10) : 0;
  const auto once = [&](std::string& into) {
    return args.run(Context{**client, into, args.json, columns});
  };
  Status status = args.watch ? watch(*args.watch, once) : once(out);
  return finish(std::move(status), out, args.json);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args;
  args.options.client_name = "precisctl/" PRECIS_VERSION;
  if (const char* const user = std::getenv("USER")) args.budget.user = user;
  CLI::App app("Inspects a running precisd and changes its live settings.", "precisctl");
  app.footer(kExitCodes);
  describe(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      return finish(Status::invalid(misuse(app, error)), "", args.json);
    }
    std::ostringstream asked_for;  // the help, or the version
    app.exit(error, asked_for, asked_for);
    return finish({}, asked_for.str(), args.json);
  }
  return run(args);
}
