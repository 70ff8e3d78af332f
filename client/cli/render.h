// Replies as text for people. A table is at most `columns` wide, as far as its columns allow; 0: as
// wide as its cells.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "client/cli/disk_use.h"
#include "precis/messages.h"

namespace precis::cli {

// A recipe as it was set. The JSON of a recipe with a table of layers and heads is too long to
// read: "kvdiff(min_entries=128), table NAME".
std::string recipe_words(const std::string& recipe);
// A segment's recipe as a user would write it; if it matches no preset, its scorer and table. A
// profile is named by the first digits of its digest.
std::string recipe_text(const msg::SegmentInfo& row);
std::string status_text(const msg::ServerStatus& status, const DiskUse& all = {});
std::string models_text(std::span<const msg::ModelRow> rows, std::size_t columns = 0);
// `models`: to find the name of a segment's model.
std::string segments_text(std::span<const msg::SegmentInfo> rows,
                          std::span<const msg::ModelRow> models, std::size_t columns = 0);
// With the plan as a table of layers and heads, if the row has it.
std::string segment_text(const msg::SegmentInfo& row, std::span<const msg::ModelRow> models,
                         std::size_t columns = 0);
std::string profiles_text(std::span<const msg::ProfileRow> rows,
                          std::span<const msg::ModelRow> models, std::size_t columns = 0);
std::string profile_text(const msg::ProfileRow& row, std::span<const msg::ModelRow> models);
std::string sessions_text(std::span<const msg::SessionRow> rows, std::size_t columns = 0);
// `takes`: what its segments take; empty: not asked for.
std::string session_text(const msg::SessionRow& row, const std::string& takes = {});
// Whether a put at `keep` gets the limit instead, as far as that is known without a segment: a
// ratio and a number of entries can't be compared.
bool is_above(const Budget& keep, const Budget& limit);
struct ModelBudgets {
  msg::ModelRow model;
  msg::Budgets budgets;  // in force for this model
};
// `models`: the models for which another budget than the default is in force.
std::string budgets_text(const msg::Budgets& budgets, std::span<const ModelBudgets> models,
                         std::size_t columns = 0);
std::string stats_text(const msg::Stats& stats, std::size_t columns = 0);

}  // namespace precis::cli
