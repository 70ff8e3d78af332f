// The commands and options of `precisctl prefix`.
#include <limits>
#include <string>

#include "client/cli/command_parts.h"
#include "precis/hint_limits.h"

namespace precis::cli {
namespace {

// Parses with `parse`, whose error is one of usage.
template <typename Parse, typename Value>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, std::optional<Value>& into,
                        Parse parse, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&into, parse, name](const std::string& text) {
        const auto value = parse(text, name);
        if (!value.ok()) throw CLI::ValidationError(value.status().message());
        into = *value;
      },
      help);
}

// Whole seconds, rounded up.
Result<std::uint64_t> parse_ttl(const std::string& text, const std::string& option) {
  if (text == "none") return std::uint64_t{0};
  PRECIS_ASSIGN(const std::uint64_t ms, parse_age(text, option));
  return (ms + 999) / 1000;
}

void add_filter(CLI::App& command, SegmentFilter& filter) {
  command.add_option("--model", filter.model,
                     "Only segments of this model, by name or fingerprint");
  command.add_option("--session", filter.session, "Only the segments of this session's prefix");
  add_parsed(command, "--unused", filter.unused_ms, parse_age,
             "Only segments that were not used for so long, such as 7d, 12h or 30m; one that was "
             "never used counts from its commit")
      ->type_name("AGE");
  add_parsed(command, "--larger", filter.larger_bytes, parse_bytes,
             "Only segments stored in more bytes, such as 1GiB")
      ->type_name("SIZE");
}

void add_ls(CLI::App& group, Arguments& a) {
  CLI::App* ls = add_watch(add_command(group, "ls", "List the segments, the newest first", a,
                                       [&a](Context c) { return list_prefixes(c, a.list); }),
                           a);
  add_filter(*ls, a.list.filter);
  ls->add_option_function<std::string>(
        "--sort", [&a](const std::string& name) { a.list.order = parse_order(name); },
        "The order, largest first: newest, last used, most bytes, tokens or hits, largest stored "
        "share of the original, or highest priority; all but created read the whole list")
      ->check(CLI::IsMember(kSegmentOrders))
      ->default_str("created");
  ls->add_flag("--reverse", a.list.reverse, "The smallest or oldest first");
  CLI::Option* limit =
      ls->add_option("--limit", a.list.limit, "The most segments to list")
          ->capture_default_str()
          ->type_name("N")
          ->check(CLI::Range(1u, std::numeric_limits<std::uint32_t>::max()).description(""));
  ls->add_flag("--all", a.list.all, "List all that match; precisctl holds them in memory")
      ->excludes(limit);
  ls->footer(
      "The last line has the totals. On a terminal, columns that do not fit are left out; --json "
      "has all of them.");
}

void add_rm(CLI::App& group, Arguments& a) {
  CLI::App* rm = add_command(group, "rm", "Remove a segment, or all that match", a,
                             [&a](Context c) { return remove_prefix(c, a.removal); });
  rm->add_option("id", a.removal.id, "The id, or an unambiguous beginning of it");
  add_filter(*rm, a.removal.filter);
  rm->add_flag("--recursive", a.removal.recursive, "Also remove the descendants");
  rm->add_flag("--dry-run", a.removal.dry_run,
               "Without an id: show how many match, and change nothing");
  add_yes(*rm, a.removal.yes);
  rm->footer(
      "Without an id, the filters choose, and all of them must match. Segments with children that "
      "do not match are left. Ctrl-C ends it after the segment in progress and says what was "
      "done. A session whose tip is removed stays, without a tip; session ls shows that. The disk "
      "gets the space back a little later: see the guide to operations, Disk space.");
}

void add_trim(CLI::App& group, Arguments& a) {
  CLI::App* trim = add_command(
      group, "trim", "Keep fewer entries of a segment, or of all that match, as a put would", a,
      [&a](Context c) { return trim_prefix(c, a.trim); });
  trim->add_option("id", a.trim.id, "The id, or an unambiguous beginning of it");
  add_filter(*trim, a.trim.filter);
  trim->add_option("--keep", a.trim.keep,
                   "A ratio such as 0.2, '128 entries' per head, '64 MiB' per segment, or '10% "
                   "bytes' of the full KV; at most the stored budget")
      ->required();
  trim->add_flag("--whole", a.trim.whole,
                 "With an id: also trim its ancestors, except those that store less");
  trim->add_flag("--dry-run", a.trim.dry_run, "Show how much would be freed, and change nothing");
  add_yes(*trim, a.trim.yes);
  trim->add_option("--durability", a.trim.durability, "How durable the trimmed segment is")
      ->capture_default_str()
      ->check(CLI::IsMember({"memory", "wal", "fsync", "shared"}));
  trim->footer(
      "Without an id, the filters choose, and all of them must match. Freed bytes are those of "
      "records: the disk may first grow, because trimmed segments are written anew, and gets the "
      "space back a little later: see the guide to operations, Disk space.");
}

void add_set(CLI::App& group, Arguments& a) {
  CLI::App* set = add_command(group, "set", "Set how long a segment is worth keeping", a,
                              [&a](Context c) { return set_retention(c, a.retention); });
  set->add_option("id", a.retention.id, "The id, or an unambiguous beginning of it")->required();
  set->add_option("--priority", a.retention.priority,
                  "0 to 100, at first 50: 10 points count as being used twice as often")
      ->type_name("N")
      ->check(CLI::Range(0u, limits::kPriorityMax).description(""));
  add_parsed(*set, "--ttl", a.retention.ttl_s, parse_ttl,
             "The time without use after which the worth halves, such as 1h, and again after each "
             "further such time; 'none' ends that")
      ->type_name("AGE");
  set->add_flag("--whole", a.retention.whole, "Also set it of the ancestors");
  set->footer(
      "It changes what goes first when space is short, and removes nothing. A later put or "
      "lookup of a client that gives hints sets them anew.");
}

}  // namespace

void add_prefix_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "prefix", "Stored prefixes, segment by segment");
  add_ls(group, a);
  CLI::App* show = add_command(group, "show", "Show a segment's recipe, budget, sizes and plan", a,
                               [&a](Context c) { return show_prefix(c, a.name); });
  show->add_option("id", a.name, "The id, or an unambiguous beginning of it")->required();
  add_rm(group, a);
  add_trim(group, a);
  add_set(group, a);
}

}  // namespace precis::cli
