// Budgets by layer and head, as an operator writes them: a profile with a weight for each (layer,
// KV head), and the recipe that uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/messages.h"
#include "precis/profile.h"

namespace precis::cli {

// Parts of a table. "0-3=0.5" gives layers their share of entries, in (0, 1], and "12.3=0.6" KV
// head 3 of layer 12. A whole number from 2 on is entries per head instead: "0-3=128".
struct TableParts {
  struct Part {
    std::string text;
    std::string place;  // for errors: "FILE:12"; empty on the command line
  };
  std::vector<Part> layers, heads;
};
// `layers`: "0-3=0.5,4-31=0.15". `heads`: one part each.
TableParts table_parts(const std::string& layers, const std::vector<std::string>& heads);
// One part a line; blanks and what follows a # do not count. kInvalidArgument names the file, and
// the line if one has no such form.
Result<TableParts> read_table(const std::string& file);

struct BudgetTable {
  Profile profile;
  Recipe recipe;
  Budget keep;  // the mean of all parts
};

// `parts` must cover every layer, and all be shares or all entries. `recipe`: gives the scores.
// kInvalidArgument names the part that is wrong, or the layers without one.
Result<BudgetTable> make_budget_table(const msg::ModelRow& model, const std::string& recipe,
                                      const TableParts& parts);

// How many entries of each (layer, KV head) a put of a segment with the place of `like` keeps with
// the table at `keep`, [num_layers, num_kv_heads]. Errors as budget_entries().
Result<std::vector<std::uint32_t>> table_counts(const BudgetTable& table, const ModelSpec& model,
                                                const msg::SegmentInfo& like, const Budget& keep,
                                                const std::optional<Budget>& limit);

}  // namespace precis::cli
