#include "client/cli/command_line.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "client/cli/command_parts.h"
#include "client/cli/completion.h"
#include "client/cli/table.h"
#include "client/cli/watch.h"

namespace precis::cli {

CLI::App* add_command(CLI::App& group, const std::string& name, const std::string& help,
                      Arguments& args, std::function<Status(Context)> run) {
  CLI::App* command = group.add_subcommand(name, help);
  command->fallthrough();
  command->callback([&args, run = std::move(run)] { args.run = run; });
  return command;
}

CLI::App& add_group(CLI::App& app, const std::string& name, const std::string& help) {
  CLI::App* group = app.add_subcommand(name, help);
  group->require_subcommand(1);
  group->fallthrough();
  return *group;
}

CLI::Option* add_interval(CLI::App& command, const std::string& name,
                          std::function<void(std::chrono::milliseconds)> take,
                          const std::string& help) {
  return command
      .add_option_function<std::string>(
          name,
          [take = std::move(take), name](const std::string& text) {
            // CLI11 passes "true" if an optional value is left out.
            const auto interval = parse_interval(text == "true" ? "2" : text, name);
            if (!interval.ok()) throw CLI::ValidationError(interval.status().message());
            take(*interval);
          },
          help)
      ->type_name("SECONDS");
}

CLI::App* add_watch(CLI::App* command, Arguments& a) {
  const auto take = [&a](std::chrono::milliseconds interval) { a.watch = interval; };
  add_interval(*command, "--watch", take,
               "Show it again and again, every so many seconds, until q or Ctrl-C")
      ->expected(0, 1)
      ->default_str("2");
  return command;
}

CLI::Option* add_yes(CLI::App& command, bool& yes) {
  return command.add_flag("--yes,-y", yes, "Do not ask; needed where nobody can be asked");
}

namespace {

void add_model_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "model", "Registered models");
  add_watch(add_command(group, "ls", "List the models", a, list_models), a);
  CLI::App* rm = add_command(group, "rm", "Remove a model, with its profiles and defaults", a,
                             [&a](Context c) { return remove_model(c, a.model_removal); });
  rm->add_option("model", a.model_removal.model, "Its name or fingerprint")->required();
  rm->add_flag("--recursive", a.model_removal.recursive,
               "Also remove its segments; without it, a model with segments is refused");
  add_yes(*rm, a.model_removal.yes);
}

void add_session_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "session", "Sessions: names for the tips of prefixes");
  add_watch(add_command(group, "ls", "List the sessions", a, list_sessions), a);
  CLI::App* show = add_command(group, "show", "Show a session", a,
                               [&a](Context c) { return show_session(c, a.name); });
  CLI::App* pin = add_command(group, "pin", "Protect its tip and the tip's ancestors from removal",
                              a, [&a](Context c) { return pin_session(c, a.name, true); });
  CLI::App* unpin = add_command(group, "unpin", "Allow their removal again", a,
                                [&a](Context c) { return pin_session(c, a.name, false); });
  CLI::App* set = add_command(group, "set", "Change what all of its turns may take together", a,
                              [&a](Context c) { return set_session(c, a.name, a.keep); });
  set->add_option(
         "--total", a.keep,
         "A share of their full KV such as 20%, bytes such as 64MiB, or none; old turns are "
         "trimmed first, in the background")
      ->required();
  CLI::App* rm = add_command(group, "rm", "Remove a session; its prefix stays", a,
                             [&a](Context c) { return remove_session(c, a.name); });
  for (CLI::App* command : {show, set, pin, unpin, rm}) {
    command->add_option("name", a.name, "The session's name")->required();
  }
}

void add_profile_commands(CLI::App& app, Arguments& a) {
  CLI::App& group =
      add_group(app, "profile", "Scorers and head budgets, learnt by precis profile build");
  CLI::App* add = add_command(group, "add", "Add a profile to the service", a,
                              [&a](Context c) { return add_profile(c, a.file, a.model); });
  add->add_option("file", a.file, "The JSON file that precis profile build wrote")->required();
  add->add_option(
      "--model", a.model,
      "The registered model with the same weights, by name or fingerprint; by default the "
      "one that the file names");
  CLI::App* ls = add_watch(add_command(group, "ls", "List the profiles", a,
                                       [&a](Context c) { return list_profiles(c, a.model); }),
                           a);
  ls->add_option("--model", a.model, "Only profiles of this model, by name or fingerprint");
  CLI::App* show =
      add_command(group, "show", "Show a profile's model, scorer and origin", a,
                  [&a](Context c) { return show_profile(c, a.model, a.name, a.file); });
  show->add_option("--out", a.file, "Also write its JSON to this file, for profile add");
  CLI::App* rm = add_command(group, "rm", "Remove a profile; segments stored with it stay", a,
                             [&a](Context c) { return remove_profile(c, a.model, a.name); });
  for (CLI::App* command : {show, rm}) {
    command->add_option("name", a.name, "The profile's name")->required();
    command->add_option("--model", a.model,
                        "The profile's model, if several models have a profile of that name");
  }
}

// "5s", "500ms", or seconds without a unit.
std::uint32_t parse_timeout_ms(const std::string& text) {
  const std::optional<double> ms = parse_ms(text, {"", "s", "ms"});
  if (!ms || !(*ms >= 1 && *ms <= 3'600'000)) {
    throw CLI::ValidationError("--timeout", "'" + text +
                                                "' must be seconds such as 5 or 5s, or "
                                                "milliseconds such as 500ms, up to an hour (a bare "
                                                "number is seconds)");
  }
  return static_cast<std::uint32_t>(*ms);
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("--address", a.address,
                 "HOST:PORT of precisd, unix:PATH, or precis://HOST:PORT,... of a cluster")
      ->envname("PRECIS_ADDRESS")
      ->capture_default_str();
  app.add_option("--tenant", a.options.tenant, "Default: the service's default tenant")
      ->envname("PRECIS_TENANT");
  app.add_option("--token", a.options.token, "The tenant's token; better set in the environment")
      ->envname("PRECIS_TOKEN");
  app.add_option("--tls-ca", a.options.tls_ca,
                 "TLS: the CA that signed the service's certificate: a PEM file, or system")
      ->envname("PRECIS_TLS_CA");
  app.add_option("--tls-cert", a.options.tls_cert,
                 "Mutual TLS: the client's certificate, a PEM file")
      ->envname("PRECIS_TLS_CERT");
  app.add_option("--tls-key", a.options.tls_key, "Mutual TLS: the certificate's key, a PEM file")
      ->envname("PRECIS_TLS_KEY");
  app.add_option("--rdma", a.options.rdma,
                 "RDMA: auto (if both hosts have a device), off, or devices such as mlx5_0:1")
      ->envname("PRECIS_RDMA")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--timeout",
         [&a](const std::string& text) { a.options.timeout_ms = parse_timeout_ms(text); },
         "Longest wait for an answer: seconds such as 5 or 5s, or 500ms")
      ->default_str(fmt::format("{}s", a.options.timeout_ms / 1000));
  app.add_flag("--json", a.json, "JSON instead of tables");
}

void add_top(CLI::App& app, Arguments& a) {
  CLI::App* top = add_command(app, "top", "Show the service's activity, again and again", a,
                              [&a](Context c) { return show_top(c, a.top); });
  add_interval(
      *top, "--interval", [&a](std::chrono::milliseconds interval) { a.top.interval = interval; },
      "The time between two readings")
      ->default_str("2");
  top->add_flag("--once", a.top.once, "Show the activity of one interval, and end");
  top->footer(
      "q or Ctrl-C ends it. The rates at the top are of all tenants. Admins see their tenants, "
      "others "
      "their models; segments are the tenant's.");
}

void add_events(CLI::App& app, Arguments& a) {
  CLI::App* events = add_command(app, "events", "Print what became of stored segments", a,
                                 [&a](Context c) { return show_events(c, a.events); });
  events->add_flag("--follow,-f", a.events.follow, "Go on with later events, until Ctrl-C");
  events
      ->add_option("--after", a.events.after,
                   "Begin after this position of an event; oldest: with the oldest that is kept; "
                   "newest: with the next one")
      ->capture_default_str();
  events->footer("With --json, each line is an event. docs/guides/events.md explains the keys.");
}

void add_completion(CLI::App& app, Arguments& a) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  command->fallthrough();
  command->add_option("shell", a.shell, "The shell")->required()->check(CLI::IsMember(kShells));
  command->callback([&app, &a] { a.printed = completion_script(app, a.shell); });
  command->footer(
      "cmake --install installs these scripts. For one shell: source <(precisctl completion bash)");
}

}  // namespace

void describe(CLI::App& app, Arguments& a) {
  app.require_subcommand(1);
  add_options(app, a);
  app.set_version_flag("--version", "precisctl " PRECIS_VERSION);
  CLI::App* status =
      add_command(app, "status", "Show whether the service is up, and what it stores", a,
                  [&a](Context c) { return show_status(c, a.must_serve); });
  status->add_flag("--ready", a.must_serve,
                   "Fail if puts are refused, or the service is no member of its cluster");
  add_watch(status, a);
  add_top(app, a);
  add_model_commands(app, a);
  add_prefix_commands(app, a);
  add_session_commands(app, a);
  add_profile_commands(app, a);
  add_budget_commands(app, a);
  add_tenant_commands(app, a);
  add_backup_commands(app, a);
  add_cluster_commands(app, a);
  add_watch(
      add_command(
          app, "stats",
          "Show counters and gauges of the service; those of stored data count the tenant's only",
          a, show_stats),
      a);
  add_events(app, a);
  CLI::App* fsck = add_command(
      app, "fsck",
      "Read and check every segment of the tenant; damaged ones are taken out of service", a,
      [&a](Context c) { return check_store(c, a.repair); });
  fsck->add_flag("--repair", a.repair, "Remove damaged segments and their descendants");
  add_completion(app, a);
}

std::string misuse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;
  std::string path;
  for (auto given = app.get_subcommands(); !given.empty(); given = at->get_subcommands()) {
    at = given.front();
    path += " " + at->get_name();
  }
  std::string choices;
  for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; })) {
    choices += (choices.empty() ? "" : ", ") + command->get_name();
  }
  const std::vector<std::string> rest = app.remaining(true);
  const std::string help = "; see precisctl" + path + " --help";
  if (choices.empty()) return std::string(error.what()) + help;
  if (rest.empty()) return "a command is missing after 'precisctl" + path + "': " + choices;
  return "'" + rest.front() + "' is not a command of 'precisctl" + path + "': choose " + choices;
}

}  // namespace precis::cli
