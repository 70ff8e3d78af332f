// precisctl's commands: each asks the service and prints the reply, as text or as JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/cli/segment_list.h"
#include "client/cli/terminal.h"
#include "precis/client.h"

namespace precis::cli {

// The inputs that every command needs besides its own arguments.
struct Context {
  Client& client;
  std::string& out;  // collects the text to print
  bool json = false;
  std::size_t wanted_columns = 0;  // as in output_columns()
  // The widest table that fits; 0: any.
  std::size_t columns() const { return output_columns(wanted_columns); }
};

// `must_serve`: fails as the probe /readyz does.
Status show_status(Context context, bool must_serve);
Status list_models(Context context);

struct ModelRemoval {
  std::string model;
  bool recursive = false;  // with its segments
  bool yes = false;        // without a question
};
// Removes a model. kConflict if it has segments, unless `recursive`.
Status remove_model(Context context, const ModelRemoval& how);

Status list_prefixes(Context context, const ListOptions& options);
Status show_prefix(Context context, const std::string& id);

struct PrefixRemoval {
  std::string id;        // empty: those that the filter chooses
  SegmentFilter filter;  // must choose none if there is an id
  bool recursive = false, yes = false;
  bool dry_run = false;  // only says what would be removed
};
// Removes one segment, or those that the filter chooses after asking the user.
Status remove_prefix(Context context, const PrefixRemoval& how);

struct PrefixTrim {
  std::string id, keep;  // id: as in PrefixRemoval
  SegmentFilter filter;
  bool yes = false;
  std::string durability = "wal";
  bool whole = false;  // with all its ancestors, except those that already store less
  bool dry_run = false;
};
// Trims stored segments to a smaller budget and prints how many bytes that freed.
Status trim_prefix(Context context, const PrefixTrim& how);

struct PrefixRetention {
  std::string id;
  std::optional<std::uint32_t> priority;
  std::optional<std::uint64_t> ttl_s;  // 0: none
  bool whole = false;                  // with all its ancestors
};
// Sets what is given.
Status set_retention(Context context, const PrefixRetention& how);

// Reads the records of every segment of the tenant and prints the damaged segments; `repair`
// removes them and their descendants. kCorruption if damage remains or acknowledged changes are
// missing, else kTimedOut if some segments could not be read.
Status check_store(Context context, bool repair);

Status list_sessions(Context context);
Status show_session(Context context, const std::string& name);
// `total`: a share or bytes, or "none".
Status set_session(Context context, const std::string& name, const std::string& total);
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

Status show_stats(Context context);

struct EventOptions {
  std::string after = "oldest";  // as ListEvents has it
  bool follow = false;
};
// Prints what became of stored segments, a line for each, at once. `follow`: until Ctrl-C.
Status show_events(Context context, const EventOptions& options);

struct TopOptions {
  std::chrono::milliseconds interval{2000};
  bool once = false;  // one frame, of the activity during the interval
};
// Shows rates, memory, disk, the largest consumers and the newest segments until the user ends it.
Status show_top(Context context, const TopOptions& options);

}  // namespace precis::cli
