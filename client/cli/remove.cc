// precisctl prefix rm and model rm.
#include <fmt/format.h>

#include "client/cli/bulk.h"
#include "client/cli/commands.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

Json to_json(const Removal& removal, bool dry_run) {
  return {{"segments", removal.segments},
          {"bytes", removal.bytes},
          {"left", left_json(removal.left)},
          {"dry_run", dry_run}};
}

std::string to_text(const Removal& removal) {
  return fmt::format("removed {}, {} freed\n", counted(removal.segments, "segment"),
                     bytes_text(removal.bytes)) +
         left_text(removal.left, "removed");
}

Status remove_one(Context context, const std::string& id, bool recursive) {
  PRECIS_ASSIGN(const SegmentId segment, find_segment(context.client, id));
  PRECIS_ASSIGN(const msg::Removed removed, context.client.remove_segment(segment, recursive));
  const Removal removal{removed.segments, removed.bytes, {}, {}};
  context.out += context.json ? json_text(to_json(removal, false)) : to_text(removal);
  return {};
}

// The chosen segments that a dry run names, as if they were removed.
void print_plan(Context context, const Chosen& chosen, std::size_t kept) {
  if (context.json) {
    Json json = to_json({chosen.segments.size(), chosen.stored_bytes, {}, {}}, true);
    json["kept_parents"] = kept;
    context.out += json_text(json);
    return;
  }
  context.out += fmt::format("would remove {}\n", chosen_text(chosen));
  if (kept > 0) {
    context.out += fmt::format(
        "would leave {}, because not all of their descendants match (--recursive removes these "
        "too)\n",
        counted(kept, "segment"));
  }
}

Status remove_filtered(Context context, const PrefixRemoval& how) {
  if (!how.dry_run) PRECIS_TRY(check_can_ask(how.yes));
  catch_interrupts();
  PRECIS_ASSIGN(Chosen chosen, choose(context.client, how.filter));
  const std::size_t kept = how.recursive ? 0 : keep_parents(chosen);
  if (how.dry_run) {
    print_plan(context, chosen, kept);
    return {};
  }
  if (!chosen.segments.empty()) {
    PRECIS_TRY(confirm(fmt::format("Remove {}{}?", chosen_text(chosen),
                                   how.recursive ? ", and all their descendants" : ""),
                       how.yes));
  }
  const Removal removal = remove_chosen(context.client, chosen, how.filter, how.recursive);
  if (context.json) {
    Json json = to_json(removal, false);
    json["kept_parents"] = kept;
    context.out += json_text(json);
    return removal.status;
  }
  context.out += to_text(removal);
  if (kept > 0) {
    context.out +=
        fmt::format("left {}: not all of their descendants match\n", counted(kept, "segment"));
  }
  if (chosen.more) context.out += "more segments match: run it again\n";
  return removal.status;
}

}  // namespace

Status remove_prefix(Context context, const PrefixRemoval& how) {
  PRECIS_TRY(check_choice(how.id, how.filter));
  if (how.dry_run && !how.id.empty()) {
    return Status::invalid(
        "--dry-run counts what filters choose, so give none of an id; prefix "
        "show ID shows that segment, and how many children it has");
  }
  return how.id.empty() ? remove_filtered(context, how)
                        : remove_one(context, how.id, how.recursive);
}

Status remove_model(Context context, const ModelRemoval& how) {
  PRECIS_ASSIGN(const msg::ModelRow row, find_model(context.client, how.model));
  Removal removal;
  const SegmentFilter filter{row.fingerprint.hex(), {}, {}, {}};
  if (how.recursive && row.segments > 0) {
    PRECIS_TRY(check_can_ask(how.yes));
    catch_interrupts();
    PRECIS_ASSIGN(const Chosen chosen, choose(context.client, filter));
    PRECIS_TRY(confirm(
        fmt::format("Remove model {} with {}?", printable(row.model.name), chosen_text(chosen)),
        how.yes));
    removal = remove_chosen(context.client, chosen, filter, /*recursive=*/false);
  }
  if (removal.status.ok()) removal.status = context.client.remove_model(row.fingerprint);
  if (context.json) {
    Json json = to_json(removal, false);
    json["removed"] = removal.status.ok();
    context.out += json_text(json);
    return removal.status;
  }
  if (how.recursive) context.out += to_text(removal);
  if (removal.status.ok()) {
    context.out +=
        fmt::format("removed model {} ({})\n", printable(row.model.name), row.fingerprint.hex());
  }
  return removal.status;
}

}  // namespace precis::cli
