#include "client/cli/command_line.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace precis::cli {
namespace {

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

void add_prefix_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "prefix", "Stored prefixes, segment by segment");
  CLI::App* ls = add_command(group, "ls", "List the segments", a,
                             [&a](Context c) { return list_prefixes(c, a.model, a.limit); });
  ls->add_option("--model", a.model, "Only segments of this model, by name or fingerprint");
  ls->add_option("--limit", a.limit, "The most segments to list")
      ->capture_default_str()
      ->check(CLI::Range(1u, std::numeric_limits<std::uint32_t>::max()));
  CLI::App* show = add_command(group, "show", "Show a segment's recipe, budget, sizes and plan", a,
                               [&a](Context c) { return show_prefix(c, a.name); });
  show->add_option("id", a.name, "The id, or an unambiguous beginning of it")->required();
  CLI::App* rm = add_command(group, "rm", "Remove a segment", a,
                             [&a](Context c) { return remove_prefix(c, a.name, a.recursive); });
  rm->add_option("id", a.name, "The id, or an unambiguous beginning of it")->required();
  rm->add_flag("--recursive", a.recursive, "Also remove its descendants");
  rm->footer("A session whose tip is removed stays, without a tip; session ls shows that.");
  CLI::App* trim =
      add_command(group, "trim", "Keep fewer entries of a segment, as a put at that budget would",
                  a, [&a](Context c) { return trim_prefix(c, a.trim); });
  trim->add_option("id", a.trim.id, "The id, or an unambiguous beginning of it")->required();
  trim->add_option("--keep", a.trim.keep,
                   "A ratio such as 0.2, '128 entries' per head, or '64 MiB' per segment; at most "
                   "the stored budget")
      ->required();
  trim->add_flag("--whole", a.trim.whole, "Also trim its ancestors, except those that store less");
  trim->add_flag("--dry-run", a.trim.dry_run, "Show how much would be freed, and change nothing");
  trim->add_option("--durability", a.trim.durability, "memory, wal or fsync")
      ->capture_default_str();
}

void add_session_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "session", "Sessions: names for the tips of prefixes");
  add_command(group, "ls", "List the sessions", a, list_sessions);
  CLI::App* show = add_command(group, "show", "Show a session", a,
                               [&a](Context c) { return show_session(c, a.name); });
  CLI::App* pin = add_command(group, "pin", "Protect its tip and the tip's ancestors from removal",
                              a, [&a](Context c) { return pin_session(c, a.name, true); });
  CLI::App* unpin = add_command(group, "unpin", "Allow their removal again", a,
                                [&a](Context c) { return pin_session(c, a.name, false); });
  CLI::App* rm = add_command(group, "rm", "Remove a session; its prefix stays", a,
                             [&a](Context c) { return remove_session(c, a.name); });
  for (CLI::App* command : {show, pin, unpin, rm}) {
    command->add_option("name", a.name, "The session's name")->required();
  }
}

void add_budget_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "budget", "Defaults for puts that name no recipe or no budget");
  CLI::App* show = add_command(
      group, "show", "Show the defaults of every scope, those in force, and models with others", a,
      [&a](Context c) { return show_budget(c, a.model); });
  show->add_option("--model", a.model, "Show the defaults for this model, by name or fingerprint");

  CLI::App* set = group.add_subcommand("set", "Change the defaults, from the next put on");
  set->fallthrough();
  set->add_option("--model", a.model, "Only for this model, by name or fingerprint");
  CLI::Option* recipe = set->add_option("--recipe", a.recipe,
                                        "A preset such as global_kvdiff, "
                                        "preset(param=value, ...), or JSON");
  CLI::Option* keep = set->add_option("--keep", a.keep,
                                      "A ratio such as 0.3, '128 entries' per "
                                      "head, '64 MiB' per segment, or 'quality 0.95 up to 0.5'");
  CLI::Option* unset = set->add_flag(
      "--unset", a.unset, "Remove the defaults of this scope: those of the wider scope apply");
  unset->excludes(recipe)->excludes(keep);
  set->callback([&a, recipe, keep] {
    BudgetChange change;
    if (recipe->count() > 0) change.recipe = a.recipe;
    if (keep->count() > 0) change.keep = a.keep;
    change.unset = a.unset;
    if (!change.recipe && !change.keep && !change.unset) {
      throw CLI::ValidationError("budget set", "give --recipe, --keep or --unset");
    }
    a.run = [&a, change](Context c) { return set_budget(c, a.model, change); };
  });
}

void add_profile_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "profile", "Budgets per head, learnt by precis profile build");
  CLI::App* add = add_command(group, "add", "Add a profile to the service", a,
                              [&a](Context c) { return add_profile(c, a.file, a.model); });
  add->add_option("file", a.file, "The JSON file that precis profile build wrote")->required();
  add->add_option(
      "--model", a.model,
      "The registered model with the same weights, by name or fingerprint; by default the "
      "one that the file names");
  CLI::App* ls = add_command(group, "ls", "List the profiles", a,
                             [&a](Context c) { return list_profiles(c, a.model); });
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
  const char* const last = text.data() + text.size();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  const double ms = unit == "ms" ? number : number * 1000;
  const bool known = unit.empty() || unit == "s" || unit == "ms";
  if (error != std::errc() || !known || !(ms >= 1 && ms <= 3'600'000)) {
    throw CLI::ValidationError("--timeout", "'" + text +
                                                "' must be seconds such as 5 or 5s, or "
                                                "milliseconds such as 500ms, up to an hour (a bare "
                                                "number is seconds)");
  }
  return static_cast<std::uint32_t>(ms);
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("--address", a.address, "HOST:PORT of precisd, or unix:PATH")
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

}  // namespace

void describe(CLI::App& app, Arguments& a) {
  app.require_subcommand(1);
  add_options(app, a);
  app.set_version_flag("--version", "precisctl " PRECIS_VERSION);
  add_command(app, "status", "Show whether the service is up, and what it stores", a, show_status);
  CLI::App& model = add_group(app, "model", "Registered models");
  add_command(model, "ls", "List the models", a, list_models);
  add_prefix_commands(app, a);
  add_session_commands(app, a);
  add_profile_commands(app, a);
  add_budget_commands(app, a);
  add_command(
      app, "stats",
      "Show counters and gauges of the service; those of stored data count the tenant's only", a,
      show_stats);
  CLI::App* fsck = add_command(
      app, "fsck",
      "Read and check every segment of the tenant; damaged ones are taken out of service", a,
      [&a](Context c) { return check_store(c, a.repair); });
  fsck->add_flag("--repair", a.repair, "Remove damaged segments and their descendants");
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
