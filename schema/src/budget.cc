// The number of entries of a budget (policies/budgets.md, "Budget arithmetic"; D2, D3).
#include <algorithm>
#include <numeric>

#include "precis/keep.h"
#include "precis/reader_budget.h"
#include "precis/recipe.h"
#include "precis/record_format.h"

namespace precis {
namespace {

constexpr std::uint64_t kMillion = 1'000'000;

// The same arithmetic as kvpress 0.5.5's compute_n_kept, with its rounding: 1 - r is not exact, so
// some decimal ratios keep one entry less than the floor (policies/budgets.md,
// "kvpress counting").
std::uint64_t kvpress_kept(std::uint32_t num_tokens, std::uint64_t keep_ppm) {
  const double removed = static_cast<double>(kMillion - keep_ppm) / static_cast<double>(kMillion);
  return static_cast<std::uint64_t>(static_cast<double>(num_tokens) * (1.0 - removed));
}

Result<std::uint64_t> ratio_entries_per_head(CountRule rule, std::uint32_t num_tokens,
                                             std::uint64_t keep_ppm) {
  if (keep_ppm == 0 || keep_ppm > kMillion) {
    return Status::invalid("budget of " + std::to_string(keep_ppm) +
                           " parts per million is outside (0, 1000000]");
  }
  const std::uint64_t kept = rule == CountRule::kKvpressDouble ? kvpress_kept(num_tokens, keep_ppm)
                                                               : num_tokens * keep_ppm / kMillion;
  return std::max<std::uint64_t>(1, kept);
}

// The most bytes of a record beside `record_entry_bytes` and checksums of whole blocks: the header,
// the checksum of the last block, and the padding of each section.
std::uint64_t record_overhead_bytes(const EntryForm& form) {
  std::uint64_t bytes = sizeof(RecordHeader) + kChecksumBytes;
  for (const std::size_t element : {kChecksumBytes, sizeof(float), sizeof(float), sizeof(float),
                                    form.keys().bytes(), form.values().bytes()}) {
    bytes += kSectionAlign - std::gcd(element, kSectionAlign);
  }
  return bytes;
}

// The most entries per head on average whose records take no more than a share of the KV of
// `num_tokens`, however the heads divide them. At least 1, at most one for each token.
std::uint64_t entries_within(const EntryForm& form, std::uint32_t num_tokens,
                             std::uint64_t share_ppm) {
  const std::uint64_t kv_bytes = num_tokens * form.raw().bytes();
  const std::uint64_t bytes = kv_bytes * share_ppm / kMillion;
  const std::uint64_t overhead = record_overhead_bytes(form);
  if (bytes <= overhead) return 1;
  // An entry's part of its block's checksum is kChecksumBytes / kChecksumBlockEntries.
  const std::uint64_t block_bytes =
      kChecksumBlockEntries * record_entry_bytes(form) + kChecksumBytes;
  const std::uint64_t entries = (bytes - overhead) * kChecksumBlockEntries / block_bytes;
  return std::clamp<std::uint64_t>(entries, 1, num_tokens);
}

// The entries that the budget requests, before the lower limit (the floor) and the upper (all).
Result<std::uint64_t> asked_entries(const Recipe& recipe, const ModelSpec& model,
                                    std::uint32_t num_tokens, const Budget& budget) {
  const std::uint64_t heads = std::uint64_t{model.num_layers} * model.num_kv_heads;
  if (budget.kind != Budget::Kind::kAll && budget.value == 0) {
    return Status::invalid("budget is 0, must be above 0");
  }
  switch (budget.kind) {
    case Budget::Kind::kAll: return model.entries_max(num_tokens);
    case Budget::Kind::kRatio: {
      PRECIS_ASSIGN(const std::uint64_t per_head,
                    ratio_entries_per_head(recipe.count_rule, num_tokens, budget.value));
      return heads * per_head;
    }
    case Budget::Kind::kEntries: return heads * std::min<std::uint64_t>(num_tokens, budget.value);
    case Budget::Kind::kScoreMass:
      return asked_entries(recipe, model, num_tokens, budget.without_score_mass());
    case Budget::Kind::kLoss: return check_reader_keep(budget, "the budget");
    case Budget::Kind::kBytes:
      return budget.value / record_entry_bytes(EntryForm::of(model, recipe.encoding));
    case Budget::Kind::kByteShare:
      if (budget.value > kMillion) {
        return Status::invalid("a share of bytes of " + std::to_string(budget.value) +
                               " parts per million is above 1000000");
      }
      return heads *
             entries_within(EntryForm::of(model, recipe.encoding), num_tokens, budget.value);
  }
  return Status::invalid("budget kind " + std::to_string(static_cast<int>(budget.kind)) +
                         " is unknown");
}

// D9's incremental form: protected tokens, and the same share of every ranked partition.
std::uint64_t incremental_entries(const Recipe& recipe, const ModelSpec& model,
                                  std::uint32_t num_tokens, std::uint32_t begin) {
  const std::uint64_t share = std::uint64_t{recipe.lag} * recipe.partition_keep_ppm / kMillion;
  const std::uint32_t whole = recipe.scorer == Scorer::kKnorm ? recipe.skip_layers : 0;
  std::uint64_t per_head = 0;  // over all layers
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    const std::uint32_t tokens = visible_tokens(model.windows, l, num_tokens);
    const std::uint32_t first = begin + num_tokens - tokens;
    const std::uint32_t sinks = recipe.sinks > first ? std::min(recipe.sinks - first, tokens) : 0;
    const std::uint32_t partitions = (tokens - sinks) / recipe.lag;
    const std::uint64_t ranked = l < whole || partitions < 2 ? 0 : partitions - 1;
    per_head += tokens - ranked * (recipe.lag - share);
  }
  return model.num_kv_heads * per_head;
}

}  // namespace

Result<std::uint64_t> budget_entries(const Recipe& recipe, const ModelSpec& model,
                                     std::uint32_t num_tokens, const Budget& budget,
                                     std::uint32_t begin) {
  if (num_tokens == 0) return Status::invalid("budget of a segment without tokens");
  const EntryForm form = EntryForm::of(model, recipe.encoding);
  PRECIS_TRY(form.validate());
  PRECIS_ASSIGN(std::uint64_t asked, asked_entries(recipe, model, num_tokens, budget));
  if (recipe.selector == Selector::kPartitionTopk && recipe.partition_keep_ppm > 0) {
    asked = std::min(asked, incremental_entries(recipe, model, num_tokens, begin));
  }
  const std::uint64_t heads = std::uint64_t{model.num_layers} * model.num_kv_heads;
  const std::uint32_t wanted = recipe.min_entries > begin ? recipe.min_entries - begin : 0;
  const std::uint64_t least = std::clamp<std::uint64_t>(wanted, 1, num_tokens);
  const std::uint64_t floor = heads * std::min(least, entries_within(form, num_tokens, kMillion));
  return std::min(std::max(asked, floor), model.entries_max(num_tokens));
}

Result<Recipe> with_floor_within(const Recipe& recipe, const ModelSpec& model,
                                 std::uint32_t num_tokens, std::uint32_t begin,
                                 const Budget& limit) {
  Recipe within = recipe;
  within.min_entries = 0;
  PRECIS_ASSIGN(const std::uint64_t most, budget_entries(within, model, num_tokens, limit, begin));
  const std::uint64_t heads = std::uint64_t{model.num_layers} * model.num_kv_heads;
  within.min_entries =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(recipe.min_entries, begin + most / heads));
  return within;
}

Recipe default_for(const Recipe& recipe, const Budget& asked, const std::optional<Budget>& limit) {
  const auto keeps_all = [](const Budget& keep) {
    return keep == Budget::all() || keep == Budget::ratio_ppm(kMillion);
  };
  Recipe used = recipe;
  if (keeps_all(asked) && (!limit || keeps_all(*limit))) used.encoding = Encoding::kRaw;
  return used;
}

Recipe with_fitting_rows(const Recipe& recipe, const ModelSpec& model, const Budget& asked,
                         std::uint32_t num_tokens) {
  if (recipe.encoding != Encoding::kInt8) return recipe;
  EntryForm form = EntryForm::of(model, Encoding::kInt8);
  if (form.bytes() >= form.raw().bytes()) form = form.raw();
  Recipe used = recipe;
  used.encoding = form.encoding;
  if (asked.kind == Budget::Kind::kByteShare) {
    const double share = static_cast<double>(asked.value) / kMillion;
    const double entry = record_entry_bytes(form) + 1.0 * kChecksumBytes / kChecksumBlockEntries;
    const double all = static_cast<double>(model.token_bytes()) * num_tokens;
    if (share * all >= static_cast<double>(model.entries_max(num_tokens)) * entry) return used;
  } else if (asked.kind != Budget::Kind::kLoss) {
    return used;
  }
  if (EntryForm::of(model, Encoding::kK6V4).validate().ok()) used.encoding = Encoding::kK6V4;
  return used;
}

Result<Budget> within_limit(const Recipe& recipe, const ModelSpec& model, std::uint32_t num_tokens,
                            std::uint32_t begin, const Budget& asked, const Budget& limit) {
  PRECIS_ASSIGN(const std::uint64_t wanted,
                budget_entries(recipe, model, num_tokens, asked, begin));
  PRECIS_ASSIGN(const std::uint64_t most, budget_entries(recipe, model, num_tokens, limit, begin));
  return wanted <= most ? asked : limit;
}

}  // namespace precis
