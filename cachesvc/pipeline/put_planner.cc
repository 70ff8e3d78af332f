#include "cachesvc/pipeline/put_planner.h"

#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/faithful.h"
#include "cachesvc/pipeline/default_recipe.h"
#include "precis/block_digest.h"
#include "precis/keep.h"
#include "precis/limits.h"
#include "precis/loss_budget.h"
#include "precis/reader_budget.h"
#include "precis/recipe.h"
#include "precis/record_format.h"

namespace precis {
namespace {

// The loop itself makes joiners that walk at most this many entries: that takes no longer than
// waking a thread.
constexpr std::uint64_t kInlineEntriesMax = 1024;
// Making a joiner may take a step and some bytes for each entry, and only then is the put's exact
// size known. Above this many entries, a put that certainly does not fit is refused without making
// one.
constexpr std::uint64_t kSharedToRefuseMax = 1u << 20;

// Returns a digest of the request, which all writers of a put have in common. Results such as the
// parent may be different for a later writer, so a joining writer takes those of the first. The tip
// stands for tenant, model and tokens.
Digest joint_name(const msg::BeginPut& without_tokens, const Digest& tip, std::size_t end) {
  std::vector<std::byte> bytes = encode(msg::Request{end, without_tokens});
  const Bytes name = std::as_bytes(std::span(tip.bytes));
  bytes.insert(bytes.end(), name.begin(), name.end());
  return sha256(bytes);
}

}  // namespace

PutPlanner::PutPlanner(const PutParts& parts)
    : parts_(parts),
      places_(parts.catalog, parts.arena_bytes),
      split_({parts.loop, parts.reads, parts.storage, parts.cold, parts.memory, parts.catalog,
              parts.hot_tier, parts.metrics}) {}

Task<Result<PutPlanner::Planned>> PutPlanner::plan(const Tenant& tenant, msg::BeginPut request,
                                                   const Connection& from,
                                                   std::optional<std::uint32_t> shard) {
  auto put = std::make_shared<OpenPut>();
  PRECIS_CO_ASSIGN(put->model, parts_.catalog.model(tenant.name, request.model));
  if (request.tokens.empty()) {
    co_return Status::invalid("tokens is empty; a put needs at least one");
  }
  PRECIS_CO_TRY(PathHasher::check(request.tokens.size(), put->model.block_tokens));
  if (request.parent_read) PRECIS_CO_TRY(check_reader_keep(*request.parent_read, "parent_read"));
  // Removed before the put gets its name, because each writer has its own time and span.
  put->row.prefill_seconds = std::exchange(request.prefill_seconds, 0);
  request.traceparent.clear();
  put->owner = tenant.owner(&from);
  Status settled = settle(tenant, request, *put);
  if (settled.ok()) settled = co_await equip(tenant, request, *put);
  put->row.shard = shard;
  const Digest root = tenant.root(request.model, request.adapter, shard);
  std::vector<TokenId> tokens = std::exchange(request.tokens, {});
  PutPlaces::Found found;
  Planned planned{put, settled};
  const Status placed = co_await parts_.paths.with(
      put->owner, root, std::move(tokens), put->model.block_tokens, [&](const TokenPath& path) {
        if (request.writers > 1) {
          put->joint_name = joint_name(request, path.tip(path.tokens.size()), path.tokens.size());
        }
        return settled.ok() ? places_.find(tenant, request, path, *put, found) : settled;
      });
  planned.status = placed;
  if (placed.ok() && found.split) {
    planned.status = co_await split(tenant, request, *put, found);
    // Otherwise, it begins at the last whole segment.
    if (!found.must_split) planned.status = Status();
  }
  if (planned.status.ok()) planned.status = begin(*put);
  if (planned.status.ok()) set_hints(request.hints, *put);
  co_return planned;
}

// Splits the segment in which the put should begin, and sets the put's place to that. The disk
// limits count the headers that the first part adds.
Task<Status> PutPlanner::split(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put,
                               PutPlaces::Found& found) {
  const std::uint64_t headers = std::uint64_t{put.model.num_layers} * put.model.num_kv_heads *
                                RecordLayout::of(1, EntryForm::of(put.model)).size;
  PRECIS_CO_ASSIGN(const auto counted, co_await parts_.disk_quota.enter(tenant.name, headers));
  PRECIS_CO_TRY(co_await split_.run(put.owner, found.split->segment, found.split->position,
                                    /*waits=*/found.must_split));
  co_return places_.after_split(request, put, found);
}

// Sets recipe, budget and limit: the request's, else those of the narrowest scope that sets them.
Status PutPlanner::settle(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put) {
  const msg::BudgetScope scope{request.model, request.session};
  if (!scope.session.empty()) {
    const Status known = parts_.catalog.session(tenant.name, scope.session).status();
    if (!known.ok()) return Status::not_found(known.message() + "; open it before the put");
  }
  const msg::Budgets budgets = parts_.catalog.budgets(tenant.name, scope, parts_.configured);
  const msg::BudgetRow& defaults = budgets.effective;
  PRECIS_ASSIGN(put.recipe,
                parse_recipe(request.recipe.empty() ? defaults.recipe : request.recipe));
  put.asked = request.budget ? *request.budget : defaults.keep.value_or(Budget::all());
  put.asked = put.asked.without_score_mass();
  put.limit = defaults.limit;
  if (request.recipe.empty()) {
    const Encoding before = put.recipe.encoding;
    // The segment's tokens are not known yet; one token is in every window.
    put.recipe = default_recipe(put.recipe, budgets, put.model, put.asked, /*num_tokens=*/1);
    put.takes_fitting_rows = put.asked.kind == Budget::Kind::kByteShare &&
                             before == Encoding::kInt8 && put.recipe.encoding == Encoding::kK6V4;
  }
  return EntryForm::of(put.model, put.recipe.encoding).validate();
}

// Completes the recipe, and makes a loss a ratio. If the request names it, this node already has
// what the recipe needs (know_settings.h). A default recipe may need settings that another node has
// only just got.
Task<Status> PutPlanner::equip(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put) {
  const Recipe recipe = put.recipe;
  const auto find = [&]() -> Status {
    put.recipe = recipe;
    PRECIS_TRY(find_equipment(tenant, request.model, put));
    return find_loss(request, put);
  };
  Status found = find();
  const bool may_be_new = found.code() == StatusCode::kNotFound && request.recipe.empty();
  const bool may_be_measured = !found.ok() && put.asked.kind == Budget::Kind::kLoss;
  if ((may_be_new || may_be_measured) && catch_up_) {
    const Status caught_up = co_await catch_up_(put.owner);
    if (caught_up.ok()) found = find();
  }
  PRECIS_CO_TRY(found);
  put.row.recipe = canonical_recipe(put.recipe);
  put.row.preset = put.recipe.preset;
  put.row.encoding = put.recipe.encoding;
  co_return Status();
}

// Makes a budget that is a loss a ratio.
Status PutPlanner::find_loss(const msg::BeginPut& request, OpenPut& put) {
  if (put.asked.kind != Budget::Kind::kLoss) return {};
  const auto context_tokens = static_cast<std::uint32_t>(request.tokens.size());
  PRECIS_ASSIGN(put.asked,
                budget_for_loss(put.asked, put.recipe, put.profile.get(), context_tokens));
  const bool is_default = request.recipe.empty() && put.asked == Budget::all();
  if (is_default) put.recipe = default_for(put.recipe, put.asked, put.limit);
  return {};
}

// Finds the profile and the projections that the recipe needs.
Status PutPlanner::find_equipment(const Tenant& tenant, const Digest& model, OpenPut& put) {
  if (put.recipe.needs_profile()) {
    PRECIS_ASSIGN(auto found, parts_.catalog.find_profile(tenant.name, model, put.recipe));
    put.profile = std::move(found.profile);
    // A name may refer to another profile later, so the recipe records this profile's digest.
    put.recipe.profile = found.digest.hex();
  }
  if (!put.recipe.needs_o_proj()) return {};
  put.part = Projections::part_of(put.recipe);
  put.projections.clear();
  for (std::uint32_t l = 0; l < put.model.num_layers; ++l) {
    auto row = parts_.catalog.projection(tenant.name, model, l);
    if (!row.ok()) return row.status().with_context("the recipe needs output projections");
    put.projections.push_back(std::move(row).value());
  }
  return {};
}

// Sets what follows from the segment's place: its id, its entries and its layers.
Status PutPlanner::begin(OpenPut& put) {
  SegmentRow& row = put.row;
  const ModelSpec& model = put.model;
  put.recipe.encoding = row.encoding;
  row.original_bytes = model.token_bytes() * put.num_tokens();
  if (put.limit) {
    PRECIS_ASSIGN(put.recipe,
                  with_floor_within(put.recipe, model, put.num_tokens(), row.begin, *put.limit));
  }
  PRECIS_ASSIGN(put.entries,
                budget_entries(put.recipe, model, put.num_tokens(), row.budget, row.begin));
  // A put restores what a trim removed, and replaces a segment that was computed over fewer
  // entries.
  put.already_stored = places_.is_stored(row);
  if (put.already_stored) {  // nothing will be pushed
    put.drop_kept();
    return {};
  }
  put.layers.resize(model.num_layers);
  return {};
}

// A segment that is stored keeps the values that the hints do not name.
void PutPlanner::set_hints(const msg::Hints& hints, OpenPut& put) {
  SegmentRow& row = put.row;
  parts_.catalog.hint(row.tenant, row.id, hints);
  const auto stored = parts_.catalog.info(row.tenant, row.id, /*with_plan=*/false);
  if (!stored.ok()) return take_hints(hints, parts_.clock.unix_ms(), row);
  row.priority = stored->priority;
  row.ttl_seconds = stored->ttl_seconds;
  row.expected_unix_ms = stored->expected_unix_ms;
}

Status PutPlanner::no_room(const OpenPut& put, const std::string& bytes) const {
  return Status::out_of_space("the put needs " + bytes + " B of memory (one layer and " +
                              counted(put.entries, "entry", "entries") + "), memory_bytes is " +
                              std::to_string(parts_.arena_bytes) +
                              "; put the path in several segments, keep fewer entries, or raise "
                              "memory_bytes");
}

Task<Status> PutPlanner::make_joiner(OpenPut& put) {
  const std::size_t least = put.entries_bytes_max();
  if (put.entries > kSharedToRefuseMax && least > parts_.arena_bytes) {
    co_return no_room(put, "more than " + std::to_string(least));
  }
  const auto make = [&]() -> Status {
    const auto dims = kernels::SegmentDims::of(put.model, put.num_tokens(), put.row.begin);
    PRECIS_ASSIGN(put.joiner,
                  kernels::Joiner::make(put.recipe, dims, put.entries, put.profile.get()));
    const std::size_t needed = put.staged_bytes_max();
    return needed <= parts_.arena_bytes ? Status() : no_room(put, std::to_string(needed));
  };
  if (put.entries <= kInlineEntriesMax || !kernels::Joiner::walks_entries(put.recipe)) {
    co_return make();
  }
  co_return co_await run_on(parts_.compute, parts_.loop, make);
}

Task<Result<std::unique_ptr<PutRoom::Place>>> PutPlanner::find_room(OpenPut& put,
                                                                    const Tenant& tenant,
                                                                    const Connection& from) {
  const Owner owner = tenant.owner(&from);
  if (put.already_stored) co_return co_await parts_.room.enter(0, owner);
  PRECIS_CO_TRY(co_await make_joiner(put));
  const std::size_t bytes = put.staged_bytes_max() + put.kept_bytes();
  // A put waits for the disk before it holds memory. It gives its part of the disk back while it
  // waits for memory, so that what is promised is bounded by the memory.
  const std::uint64_t records = put.entries_bytes_max();
  PRECIS_CO_ASSIGN(put.disk_quota, co_await parts_.disk_quota.enter(tenant.name, records));
  if (!parts_.room.is_free(bytes)) put.disk_quota.reset();
  PRECIS_CO_ASSIGN(auto room, co_await parts_.room.enter(bytes, owner));
  if (!put.disk_quota) {
    PRECIS_CO_ASSIGN(put.disk_quota, co_await parts_.disk_quota.enter(tenant.name, records));
  }
  co_return room;
}

}  // namespace precis
