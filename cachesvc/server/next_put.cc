#include "cachesvc/server/next_put.h"

#include <algorithm>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/pipeline/default_recipe.h"
#include "precis/reader_budget.h"

namespace precis {
namespace {

using Like = std::optional<msg::SegmentInfo>;

constexpr std::uint32_t kPageRows = 16;
constexpr std::size_t kShownBytes = 1024;  // of an error
constexpr double kHeadsPerMs = 1024;       // that assigning entries to heads takes, about

// The newest segment of a page. If there is none and `page.after` is set, look at the next page.
Result<Like> newest_of_page(const Caller& caller, msg::ListPrefixes& page) {
  const Catalog& catalog = caller.parts.catalog;
  PRECIS_ASSIGN(const msg::Segments found, catalog.segments_page(caller.tenant.name, page));
  page.after = found.next;
  for (const msg::SegmentInfo& row : found.rows) {
    if (row.out_of_service) continue;
    auto info = catalog.info(caller.tenant.name, row.id, /*with_plan=*/true);
    if (info.ok()) return Like(std::move(*info));
  }
  return Like();
}

Task<Result<Like>> segment_like(const Caller& caller, const msg::BudgetScope& scope) {
  const Catalog& catalog = caller.parts.catalog;
  if (!scope.session.empty()) {
    PRECIS_CO_ASSIGN(const msg::SessionRow session,
                     catalog.session(caller.tenant.name, scope.session));
    auto info = catalog.info(caller.tenant.name, session.tip, /*with_plan=*/true);
    co_return info.ok() ? Like(std::move(*info)) : Like();
  }
  msg::ListPrefixes page;
  page.model = scope.model;
  page.limit = kPageRows;
  Like like;
  do {
    PRECIS_CO_ASSIGN(like, co_await caller.listed([&] { return newest_of_page(caller, page); }));
  } while (!like && !page.after.empty());
  co_return like;
}

// The defaults and the limit of a model's puts after the change.
msg::Budgets in_force(const Caller& caller, const TriedBudget& tried, const Digest& model) {
  msg::Budgets budgets = caller.parts.catalog.budgets(
      caller.tenant.name, {model, tried.scope.session}, caller.parts.configured);
  const bool is_global = !tried.scope.model && tried.scope.session.empty();
  // The narrowest layer comes last: the session's or the model's.
  msg::BudgetRow& own = budgets.layers[budgets.layers.size() - (is_global ? 2 : 1)];
  own.recipe = tried.own.recipe;
  own.keep = tried.own.keep;
  own.limit = tried.own.limit;
  budgets.effective = {};
  settle(budgets);
  return budgets;
}

bool is_of_recipe(const Caller& caller, const msg::SegmentInfo& segment, Recipe recipe) {
  if (recipe.needs_profile()) {
    const auto found = caller.parts.catalog.find_profile(caller.tenant.name, segment.model, recipe);
    if (!found.ok()) return false;
    recipe.profile = found->digest.hex();
  }
  return canonical_recipe(recipe) == segment.recipe;
}

// The part of a recipe that decides in which order a head keeps its entries. The rest decides how
// many it keeps. Empty if this build can't read the recipe.
std::string order_of(Result<Recipe> recipe) {
  if (!recipe.ok()) return {};
  recipe->preset.clear();
  recipe->heads = HeadAllocator::kUniform;
  recipe->layers = LayerAllocator::kUniform;
  recipe->min_entries = 0;
  return canonical_recipe(*recipe);
}

std::string table_note(const msg::SegmentInfo& segment, const std::vector<std::uint32_t>& counts,
                       const Recipe& recipe) {
  const std::vector<std::uint32_t>& stored = segment.plan->counts;
  std::uint64_t lacking = 0;
  for (std::size_t head = 0; head < std::min(counts.size(), stored.size()); ++head) {
    if (counts[head] > stored[head]) ++lacking;
  }
  std::string note;
  if (lacking > 0) {
    note = "of " + counted(lacking, "head") +
           " the segment stores fewer entries than a put would keep: the put takes more bytes";
  }
  if (order_of(parse_recipe(segment.recipe)) == order_of(recipe)) return note;
  return note + (note.empty() ? "" : "; ") +
         "these scores are of the old recipe: only a put can tell those of the new one";
}

msg::NextPut only_a_put(std::string why) {
  msg::NextPut told;
  told.note = std::move(why);
  return told;
}

const char* name_of(const msg::BudgetScope& scope) {
  if (!scope.session.empty()) return "the session";
  return scope.model ? "the model" : "the tenant";
}

// As tell_next_put(), with the errors of the read.
Task<Result<msg::NextPut>> told_by(const Caller& caller, const TriedBudget& tried,
                                   const msg::SegmentInfo& like) {
  const msg::Budgets budgets = in_force(caller, tried, like.model);
  const msg::BudgetRow& wanted = budgets.effective;
  Budget keep = wanted.keep.value_or(Budget::all());
  PRECIS_CO_ASSIGN(const ModelSpec model,
                   caller.parts.catalog.model(caller.tenant.name, like.model));
  PRECIS_CO_ASSIGN(Recipe recipe,
                   tried.table ? Result<Recipe>(tried.table->recipe) : parse_recipe(wanted.recipe));
  recipe = tried.table ? default_for(recipe, keep, wanted.limit)
                       : default_recipe(recipe, budgets, model, keep, like.end - like.begin);
  const auto known =
      budget_of_put(caller.parts.catalog, caller.tenant.name, like.model, recipe, keep, like.end);
  if (!known.ok()) co_return only_a_put("a put would be refused: " + known.status().message());
  keep = *known;
  if (keep == Budget::all()) recipe = default_for(recipe, keep, wanted.limit);
  if (like.encoding != recipe.encoding) {
    co_return only_a_put("only a put can tell: what is stored has rows of another encoding");
  }
  if (!tried.table && !is_of_recipe(caller, like, recipe)) {
    co_return only_a_put(
        "only a put can tell what this recipe keeps: what is stored has the scores of its own "
        "recipe");
  }
  const std::uint32_t tokens = like.end - like.begin;
  Recipe lowered = recipe;
  if (wanted.limit) {
    PRECIS_CO_ASSIGN(lowered, with_floor_within(recipe, model, tokens, like.begin, *wanted.limit));
    PRECIS_CO_ASSIGN(keep, within_limit(lowered, model, tokens, like.begin, keep, *wanted.limit));
  }
  std::string note;
  std::optional<Result<msg::Trimmed>> kept;
  if (tried.table) {
    const auto deal = [&] {
      return head_counts(*tried.table, model, tokens, like.begin, keep, wanted.limit);
    };
    const double heads = 1.0 * model.num_layers * model.num_kv_heads;
    PRECIS_CO_ASSIGN(const auto counts, co_await caller.listed(deal, 1 + heads / kHeadsPerMs));
    note = table_note(like, counts, recipe);
    kept = co_await caller.parts.trim_path.would_keep(caller.owner(), like.id, counts);
  } else if (lowered.min_entries != recipe.min_entries) {
    co_return only_a_put("only a put can tell what a limit below the recipe's min_entries leaves");
  } else {
    const msg::TrimPrefix trim{like.id, keep, Durability::kWal, /*dry_run=*/true};
    kept = co_await caller.parts.trim_path.run(caller.owner(), trim);
  }
  PRECIS_CO_ASSIGN(msg::Trimmed trimmed, std::move(*kept));
  co_return msg::NextPut{
      like.id, tokens, trimmed.stored_bytes, std::move(trimmed.kept_mass), std::move(note), keep};
}

}  // namespace

Task<msg::NextPut> tell_next_put(const Caller& caller, TriedBudget tried) {
  const auto like = co_await segment_like(caller, tried.scope);
  if (like.ok() && !*like) {
    co_return only_a_put(std::string(name_of(tried.scope)) +
                         " has no stored segment: only a put can tell what it keeps");
  }
  Status status = like.status();
  if (like.ok()) {
    auto told = co_await told_by(caller, tried, **like);
    if (told.ok()) co_return std::move(*told);
    status = told.status();
  }
  std::string why = status.message().substr(0, kShownBytes);
  // A path of the disk may be no UTF-8, which the note must be.
  std::ranges::replace_if(
      why, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  co_return only_a_put("only a put can tell what it keeps: " + why);
}

}  // namespace precis
