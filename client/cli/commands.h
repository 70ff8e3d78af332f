// precisctl's commands: each asks the service and prints the reply, as text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "precis/client.h"

namespace precis::cli {

// The inputs that every command needs besides its own arguments.
struct Context {
  Client& client;
  std::string& out;  // collects the text to print
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
  bool whole = false;  // with all its ancestors, except those that already store less
  bool dry_run = false;
};
// Trims stored segments to a smaller budget and prints how many bytes that freed.
Status trim_prefix(Context context, const PrefixTrim& how);

// Reads the records of every segment of the tenant and prints the damaged segments; `repair`
// removes them and their descendants. kCorruption if damage remains or acknowledged changes are
// missing, else kTimedOut if some segments could not be read.
Status check_store(Context context, bool repair);

Status list_sessions(Context context);
Status show_session(Context context, const std::string& name);
// Sets whether the session's tip and its ancestors are protected from removal.
Status pin_session(Context context, const std::string& name, bool pinned);
Status remove_session(Context context, const std::string& name);

// `model`: the registered model that the profile is for; if empty, the model that the file names.
Status add_profile(Context context, const std::string& file, const std::string& model);
Status list_profiles(Context context, const std::string& model);
// `model` may be empty if only one model has a profile of that name. `out`: a file to write its
// JSON to; empty for none.
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
