// The options of precisctl budget.
#include "client/cli/budget_application.h"
#include "client/cli/command_parts.h"

namespace precis::cli {
namespace {

// Options of each command that makes a revision.
void add_revision_options(CLI::App& command, BudgetChange& change) {
  command.add_option("--comment", change.comment, "Why; kept with the revision");
  command.add_option("--user", change.user, "Who; kept with the revision, and not checked")
      ->default_str("$USER");
  command.add_option("--if-revision", change.if_revision,
                     "Refuse the change unless this is the newest revision");
  command.add_flag("--dry-run", change.dry_run, "Change nothing, and tell what would change");
}

void add_set(CLI::App& group, Arguments& a) {
  BudgetChange& change = a.budget;
  CLI::App* set = add_command(group, "set", "Change defaults and limits, from the next put on", a,
                              [&a](Context c) { return set_budget(c, a.model, a.budget); });
  CLI::Option* model =
      set->add_option("--model", a.model, "Only for this model, by name or fingerprint");
  CLI::Option* session =
      set->add_option("--session", change.session, "Only for the puts that name this session")
          ->excludes(model);
  CLI::Option* recipe = set->add_option("--recipe", change.recipe,
                                        "A preset such as global_kvdiff, "
                                        "preset(param=value, ...), or JSON");
  CLI::Option* keep = set->add_option("--keep", change.keep,
                                      "A ratio such as 0.3, '128 entries' per "
                                      "head, '64 MiB' per segment, '10% bytes' of the full KV, or "
                                      "'loss 0.05' of answers");
  CLI::Option* limit = set->add_option("--limit", change.limit,
                                       "The largest budget that a put gets, whatever it names: a "
                                       "ratio, entries, bytes or a share of bytes, as --keep; none "
                                       "ends it");
  CLI::Option* layers = set->add_option("--layers", change.layers,
                                        "Shares by layer, such as 0-3=0.5,4-31=0.15, or entries "
                                        "per head, such as 0-3=512,4-31=128; their mean is the "
                                        "budget unless --keep is given");
  CLI::Option* heads =
      set->add_option("--head", change.heads,
                      "The share or entries of one KV head, such as 12.3=0.6; may be given again");
  CLI::Option* table = set->add_option(
      "--table", change.table,
      "A file with such parts of --layers and --head, in lines; # begins a comment");
  table->type_name("FILE")->excludes(layers)->excludes(heads);
  CLI::Option* unset = set->add_flag("--unset", change.unset,
                                     "Remove what this scope sets: the wider scope applies");
  for (CLI::Option* set_by : {recipe, keep, limit, layers, heads, table}) unset->excludes(set_by);
  set->add_flag("--apply-to-stored", change.apply_to_stored,
                "Then trim the stored segments to the new --keep or --limit; Ctrl-C cancels that");
  add_revision_options(*set, change);
  set->parse_complete_callback([&change, model, session, recipe, keep, limit, layers, heads,
                                table] {
    const std::size_t of_table = layers->count() + heads->count() + table->count();
    if (of_table > 0 && model->count() + session->count() == 0) {
      throw CLI::ValidationError(
          "budget set",
          "a table of layers and heads is for one model: give --model, or --session, whose turns "
          "are of one");
    }
    const std::size_t given = recipe->count() + keep->count() + limit->count() + of_table;
    if (given == 0 && !change.unset) {
      throw CLI::ValidationError("budget set",
                                 "give --recipe, --keep, --limit, --layers, --table or --unset");
    }
  });
}

}  // namespace

void add_budget_commands(CLI::App& app, Arguments& a) {
  CLI::App& group =
      add_group(app, "budget", "Defaults and limits of puts, and the revisions that set them");
  CLI::App* show = add_command(
      group, "show", "Show what every scope sets, what is in force, and models with other budgets",
      a, [&a](Context c) {
        return show_budget(c, a.model, a.budget.session, a.shown_revision, a.png);
      });
  CLI::Option* model = show->add_option(
      "--model", a.model,
      "For this model, by name or fingerprint, with a map of its layers and heads");
  show->add_option("--session", a.budget.session, "For the puts that name this session")
      ->excludes(model);
  CLI::Option* png = show->add_option("--png", a.png, "Also draw that map into this file");
  show->add_option("--revision", a.shown_revision,
                   "Show what was set after this revision instead; 0 is before the first")
      ->excludes(png);
  add_set(group, a);
  CLI::App* log = add_command(group, "log", "List the revisions, the newest first", a,
                              [&a](Context c) { return list_revisions(c, a.limit); });
  log->add_option("--limit", a.limit, "The most revisions to list")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  CLI::App* diff =
      add_command(group, "diff", "Show what two revisions set differently", a,
                  [&a](Context c) { return diff_revisions(c, a.revision, a.other_revision); });
  diff->add_option("from", a.revision, "A revision; 0 is before the first")->required();
  diff->add_option("to", a.other_revision, "Another; the newest if it is not given");
  CLI::App* rollback =
      add_command(group, "rollback", "Set every scope to what it was after a revision", a,
                  [&a](Context c) { return roll_back_budget(c, a.revision, a.budget); });
  rollback->add_option("revision", a.revision, "The revision; 0 is before the first")->required();
  rollback->add_flag(
      "--apply-to-stored", a.budget.apply_to_stored,
      "Then trim the stored segments whose budget gets smaller; Ctrl-C cancels that");
  add_revision_options(*rollback, a.budget);
  CLI::App* application = add_command(
      group, "application", "Show how far the stored segments are trimmed to the last change", a,
      [&a](Context c) { return show_application(c, a.cancel); });
  application->add_flag("--cancel", a.cancel, "End it before its next segment");
}

}  // namespace precis::cli
