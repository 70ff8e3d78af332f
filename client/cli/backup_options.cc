// The options of precisctl backup and restore.
#include "client/cli/backup_commands.h"
#include "client/cli/command_parts.h"

namespace precis::cli {

void add_backup_commands(CLI::App& app, Arguments& a) {
  CLI::App* backup = app.add_subcommand(
      "backup", "Back up a running service into its backup_dir, for those with the role admin");
  backup->fallthrough();
  backup->require_subcommand(0, 1);
  backup->add_option("--name", a.backup.name, "The backup's name; by default the time");
  backup
      ->add_option("--keep", a.backup.keep,
                   "Then keep only so many of the newest backups; by default all")
      ->type_name("N");
  add_watch(add_command(*backup, "ls", "List the complete backups", a, list_backups), a);
  add_command(*backup, "cancel", "End the backup that is being made", a, cancel_backup);
  backup->callback([backup, &a] {  // after those of the commands in it
    if (!backup->get_subcommands().empty()) return;
    a.run = [&a](Context c) { return make_backup(c, a.backup); };
  });
  backup->footer("It copies only what earlier backups lack. Ctrl-C cancels it.");

  CLI::App* restore =
      app.add_subcommand("restore", "Restore a backup into an empty directory, without a service");
  restore->fallthrough();
  restore->add_option("from", a.restoration.from, "The folder of the backups")->required();
  CLI::Option* into =
      restore->add_option("--into", a.restoration.into, "The data directory, missing or empty");
  restore->add_option("--name", a.restoration.name, "The backup's name; by default the newest");
  CLI::Option* list = restore->add_flag("--list", a.restoration.list, "Only list the backups");
  CLI::Option* dry_run = restore->add_flag("--dry-run", a.restoration.dry_run,
                                           "Only read the backup and check every value");
  list->excludes(into);
  dry_run->excludes(into)->excludes(list);
  restore->callback([&a] {
    if (a.restoration.into.empty() && !a.restoration.list && !a.restoration.dry_run) {
      throw CLI::ValidationError("restore", "give --into DATA_DIR, --list or --dry-run");
    }
    a.alone = [&a] {
      a.restoration.json = a.json;
      return cli::restore(a.restoration);
    };
  });
}

}  // namespace precis::cli
