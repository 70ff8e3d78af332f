// precisctl's commands: each asks the service and tells what it said, as text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "precis/client.h"

namespace precis::cli {

// What a command needs besides its own arguments.
struct Context {
  Client& client;
  std::string& out;  // takes what is to be printed
  bool json = false;
};

Status show_status(Context context);
Status list_models(Context context);

Status list_prefixes(Context context, const std::string& model, std::uint32_t limit);
Status show_prefix(Context context, const std::string& id);
Status remove_prefix(Context context, const std::string& id, bool recursive);

struct PrefixTrim {
  std::string id, keep;
  std::string durability = "wal";
  bool whole = false;  // with what it stands on, but for what stores less already
  bool dry_run = false;
};
// Cuts stored records at a smaller budget and says which bytes that freed.
Status trim_prefix(Context context, const PrefixTrim& how);

// Reads the records of every segment of the tenant and says which are damaged; `repair` removes
// those, with what stands on them. kCorruption where damage is left or changes that were
// acknowledged are missing, else kTimedOut where some could not be read.
Status check_store(Context context, bool repair);

Status list_sessions(Context context);
Status show_session(Context context, const std::string& name);
// Whether what its tip stands on is kept from removal.
Status pin_session(Context context, const std::string& name, bool pinned);
Status remove_session(Context context, const std::string& name);

// `model`: where given, the registered model it is for, in the place of the one that the file
// names.
Status add_profile(Context context, const std::string& file, const std::string& model);
Status list_profiles(Context context, const std::string& model);
// `model` may be empty where only one has a profile of that name. `out`: a file to write its JSON
// to; empty for none.
Status show_profile(Context context, const std::string& model, const std::string& name,
                    const std::string& out);
Status remove_profile(Context context, const std::string& model, const std::string& name);

struct BudgetChange {
  std::optional<std::string> recipe, keep;
  bool unset = false;
};
Status show_budget(Context context, const std::string& model);
Status set_budget(Context context, const std::string& model, const BudgetChange& change);

Status show_stats(Context context);

}  // namespace precis::cli
