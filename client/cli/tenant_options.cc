// The options of precisctl tenant.
#include <limits>
#include <string>

#include "client/cli/command_parts.h"
#include "client/cli/segment_filter.h"

namespace precis::cli {
namespace {

// A number of bytes, such as 1GiB; 0: none.
void add_size(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& into,
              const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [&into, name](const std::string& text) {
            if (text == "0") {
              into = 0;
              return;
            }
            const auto bytes = parse_bytes(text, name);
            if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
            into = *bytes;
          },
          help)
      ->type_name("SIZE");
}

void add_settings(CLI::App& command, TenantChange& tenant) {
  command
      .add_option(
          "--role", tenant.role,
          "reader: may look up, get and list. writer: may do all but manage tenants. admin: "
          "may do all")
      ->check(CLI::IsMember({"reader", "writer", "admin"}));
  command.add_option("--weight", tenant.weight, "Its share relative to other tenants, 1 to 1000")
      ->type_name("N");
  add_size(command, "--max-disk", tenant.max_disk_bytes,
           "The most that its stored records take, such as 500GiB; 0: no limit of its own");
  add_size(command, "--max-memory", tenant.max_memory_bytes,
           "The most that its puts and layers take in memory, such as 8GiB; 0: no limit");
  command.add_option("--max-puts", tenant.max_puts, "Its puts in progress at a time; 0: no limit")
      ->type_name("N");
  command
      .add_option("--max-requests", tenant.max_requests_per_s,
                  "Its requests in a second; 0: no limit. A put of L layers takes at least L + 2")
      ->type_name("N");
}

}  // namespace

void add_tenant_commands(CLI::App& app, Arguments& a) {
  CLI::App& group =
      add_group(app, "tenant", "Tenants of the service, for those with the role admin");
  CLI::App* add = add_command(group, "add", "Add a tenant, and print its token", a,
                              [&a](Context c) { return add_tenant(c, a.tenant); });
  add_settings(*add, a.tenant);
  add->add_option("--salt", a.tenant.salt, "With another salt, the tenant has another cache");
  add_watch(add_command(group, "ls", "List the tenants", a, list_tenants), a);
  CLI::App* show = add_command(group, "show", "Show a tenant's limits, and what it uses", a,
                               [&a](Context c) { return show_tenant(c, a.tenant.name); });
  CLI::App* set = add_command(group, "set", "Change a tenant, at once", a,
                              [&a](Context c) { return set_tenant(c, a.tenant); });
  add_settings(*set, a.tenant);
  set->add_flag("--below-use", a.tenant.below_use,
                "Also accept a --max-disk below what is stored: segments of the tenant are then "
                "trimmed and removed");
  set->parse_complete_callback([&tenant = a.tenant] {
    const bool given = !tenant.role.empty() || tenant.weight || tenant.max_disk_bytes ||
                       tenant.max_memory_bytes || tenant.max_puts || tenant.max_requests_per_s;
    if (!given) throw CLI::ValidationError("tenant set", "give what is to change, such as --role");
  });
  CLI::App* rotate = add_command(group, "rotate", "Print a new token; the one before stays valid",
                                 a, [&a](Context c) { return rotate_token(c, a.tenant); });
  rotate->add_flag("--drop-old", a.tenant.drop_old,
                   "Make none: end the token before the newest, and its connections");
  CLI::App* rm = add_command(group, "rm", "Remove a tenant that has no segments", a,
                             [&a](Context c) { return remove_tenant(c, a.tenant); });
  rm->add_flag("--purge", a.tenant.purge, "Also remove its sessions, segments, models and budgets");
  add_yes(*rm, a.tenant.yes);
  for (CLI::App* command : {add, show, set, rotate, rm}) {
    command->add_option("name", a.tenant.name, "The tenant's name")->required();
  }
}

}  // namespace precis::cli
