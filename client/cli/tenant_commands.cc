#include "client/cli/tenant_commands.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "client/cli/json.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

std::string limit_text(std::uint64_t limit, const std::string& text) {
  return limit == 0 ? "no limit of its own" : text;
}

std::string used_text(const std::string& used, std::uint64_t limit, const std::string& text) {
  return limit == 0 ? used : used + " of " + text;
}

std::string tenants_text(const std::vector<msg::TenantRow>& rows, std::size_t columns) {
  Table table({{"NAME", false, 0, 12},
               {"ROLE"},
               {"IN", false, 4},
               {"TOKENS", true, 3},
               {"WEIGHT", true, 2},
               {"SEGMENTS", true},
               {"STORED", true},
               {"HITS", true, 1},
               {"PUTS", true, 1},
               {"CLIENTS", true, 1}});
  for (const msg::TenantRow& row : rows) {
    table.add({row.name, row.role, row.configured ? "configuration" : "data",
               std::to_string(row.tokens), std::to_string(row.weight), count_text(row.segments),
               used_text(bytes_text(row.stored_bytes), row.max_disk_bytes,
                         bytes_text(row.max_disk_bytes)),
               count_text(row.hits),
               used_text(count_text(row.puts), row.max_puts, count_text(row.max_puts)),
               count_text(row.connections)});
  }
  return table.text(columns);
}

std::string tenant_text(const msg::TenantRow& row) {
  Facts facts;
  facts.add("name", row.name);
  facts.add("role", row.role);
  facts.add("in", row.configured ? "the configuration" : "the data directory");
  facts.add("weight", std::to_string(row.weight));
  facts.add("tokens", row.tokens == 0 ? "none: it needs none"
                                      : counted(row.tokens, "valid token") +
                                            (row.token_unix_ms == 0
                                                 ? ""
                                                 : ", the newest " + when_text(row.token_unix_ms)));
  if (row.added_unix_ms > 0) facts.add("added", when_text(row.added_unix_ms));
  facts.add("models", count_text(row.models));
  facts.add("sessions", count_text(row.sessions));
  facts.add("stored", fmt::format("{}, {} of originally {}", counted(row.segments, "segment"),
                                  bytes_text(row.stored_bytes), bytes_text(row.original_bytes)));
  facts.add("hits", fmt::format("{} since the service started, of {}", count_text(row.hits),
                                counted(row.hit_tokens, "token")));
  facts.add("disk", limit_text(row.max_disk_bytes, "at most " + bytes_text(row.max_disk_bytes)));
  facts.add(
      "memory of puts",
      fmt::format("{}; {}", bytes_text(row.memory_bytes),
                  limit_text(row.max_memory_bytes, "at most " + bytes_text(row.max_memory_bytes))));
  facts.add("puts", fmt::format("{} in progress; {}", count_text(row.puts),
                                limit_text(row.max_puts, "at most " + count_text(row.max_puts))));
  facts.add("requests",
            limit_text(row.max_requests_per_s,
                       fmt::format("at most {} per second", count_text(row.max_requests_per_s))));
  facts.add("clients", count_text(row.connections));
  return facts.text();
}

Status print_row(Context context, const msg::TenantRow& row) {
  context.out += context.json ? json_text(to_json(row)) : tenant_text(row);
  return {};
}

Status print_issued(Context context, const msg::IssuedToken& issued) {
  if (context.json) {
    context.out += json_text(to_json(issued));
    return {};
  }
  context.out += tenant_text(issued.tenant);
  if (!issued.token.empty()) {
    context.out += fmt::format(
        "\ntoken  {}\n  It is shown only now. Clients give it with the tenant's name: "
        "PRECIS_TENANT and PRECIS_TOKEN.\n",
        issued.token);
  }
  return {};
}

}  // namespace

Status add_tenant(Context context, const TenantChange& tenant) {
  msg::AddTenant request;
  request.name = tenant.name;
  request.role = tenant.role;
  request.weight = tenant.weight.value_or(1);
  request.salt = tenant.salt;
  request.max_disk_bytes = tenant.max_disk_bytes.value_or(0);
  request.max_memory_bytes = tenant.max_memory_bytes.value_or(0);
  request.max_puts = tenant.max_puts.value_or(0);
  request.max_requests_per_s = tenant.max_requests_per_s.value_or(0);
  PRECIS_ASSIGN(const msg::IssuedToken issued, context.client.add_tenant(request));
  return print_issued(context, issued);
}

Status list_tenants(Context context) {
  PRECIS_ASSIGN(const auto rows, context.client.tenants());
  context.out += context.json ? json_text(Json{{"tenants", rows_json(rows)}})
                              : tenants_text(rows, context.columns());
  return {};
}

Status show_tenant(Context context, const std::string& name) {
  PRECIS_ASSIGN(const msg::TenantRow row, context.client.tenant(name));
  return print_row(context, row);
}

Status set_tenant(Context context, const TenantChange& change) {
  PRECIS_ASSIGN(
      const msg::TenantRow row,
      context.client.change_tenant({change.name, change.role, change.weight, change.max_disk_bytes,
                                    change.max_memory_bytes, change.max_puts,
                                    change.max_requests_per_s, change.below_use}));
  return print_row(context, row);
}

Status rotate_token(Context context, const TenantChange& how) {
  PRECIS_ASSIGN(const msg::IssuedToken issued, context.client.rotate_token(how.name, how.drop_old));
  return print_issued(context, issued);
}

Status remove_tenant(Context context, const TenantChange& how) {
  PRECIS_ASSIGN(const msg::TenantRow row, context.client.tenant(how.name));
  if (how.purge && row.segments > 0) {
    PRECIS_TRY(confirm(fmt::format("Remove tenant {} with {}, {}?", printable(row.name),
                                   counted(row.segments, "segment"), bytes_text(row.stored_bytes)),
                       how.yes));
  }
  PRECIS_ASSIGN(const msg::Removed removed, context.client.remove_tenant(how.name, how.purge));
  if (context.json) {
    Json json = to_json(removed);
    json["removed"] = row.name;
    context.out += json_text(json);
    return {};
  }
  context.out += fmt::format("removed tenant {}", printable(row.name));
  if (how.purge) {
    context.out += fmt::format(" with {}, {}", counted(removed.segments, "segment"),
                               bytes_text(removed.bytes));
  }
  context.out += "\n";
  return {};
}

}  // namespace precis::cli
