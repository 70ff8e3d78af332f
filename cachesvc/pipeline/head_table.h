// Budgets by layer and KV head, as an operator writes them: a profile with a weight for each
// (layer, head), and the recipe that uses it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/profile.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {

struct HeadTable {
  Profile profile;  // its name is made of the digest of its content
  Recipe recipe;
  Budget keep;  // the mean of all parts
};

// `text` consists of parts, separated by commas or line ends. "0-3=0.5" gives layers their share of
// entries, in (0, 1], and "12.3=60%" KV head 3 of layer 12. A whole number from 2 on is entries per
// head instead: "0-3=128". A # begins a comment, and blanks are ignored. The parts
// must cover every layer, and all be shares or all entries. `recipe` gives the scores.
// kInvalidArgument names the wrong part and its line, or the layers without one; kUnsupported for a
// model of more than 65,536 heads.
Result<HeadTable> parse_head_table(std::string_view text, const Digest& fingerprint,
                                   const ModelSpec& model, const std::string& recipe);

// How many entries of each (layer, KV head) a put of tokens [begin, begin + num_tokens) of a path
// keeps with the table at `keep`, [num_layers, num_kv_heads]. kUnsupported for a recipe that
// protects more than `sinks` and `recent`. Errors as budget_entries().
Result<std::vector<std::uint32_t>> head_counts(const HeadTable& table, const ModelSpec& model,
                                               std::uint32_t num_tokens, std::uint32_t begin,
                                               const Budget& keep,
                                               const std::optional<Budget>& limit);

}  // namespace precis
