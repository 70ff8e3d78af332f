#include "cachesvc/pipeline/put_planner.h"

#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/faithful.h"
#include "cachesvc/pipeline/cut.h"
#include "precis/block_digest.h"
#include "precis/limits.h"
#include "precis/recipe.h"

namespace precis {
namespace {

// The loop itself makes joiners that walk at most this many entries: that takes no longer than
// waking a thread.
constexpr std::uint64_t kInlineEntriesMax = 1024;
// Making a joiner may take a step and some bytes for each entry, and only then is the put's exact
// size known. Above this many entries, a put that certainly does not fit is refused without making
// one.
constexpr std::uint64_t kSharedToRefuseMax = 1u << 20;

std::string tokens_text(std::uint32_t begin, std::uint32_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// Returns a digest of the request, which all writers of a put have in common. Results such as the
// parent may be different for a later writer, so a joining writer takes those of the first. The tip
// stands for tenant, model and tokens.
Digest joint_name(const msg::BeginPut& without_tokens, const Digest& tip, std::size_t end) {
  std::vector<std::byte> bytes = encode(msg::Request{end, without_tokens});
  const Bytes name = std::as_bytes(std::span(tip.bytes));
  bytes.insert(bytes.end(), name.begin(), name.end());
  return sha256(bytes);
}

// Records over how many entries of its parents the KV was computed: those that a read at budget
// `read` returns.
Status note_parents(const std::vector<Catalog::Row>& parents, const std::optional<Budget>& read,
                    const ModelSpec& model, SegmentRow& row) {
  row.parent_read = read;
  if (read && read->kind == Budget::Kind::kQuality) return {};  // it has no entry count
  for (const Catalog::Row& parent : parents) {
    PRECIS_ASSIGN(const std::uint64_t entries,
                  cut_entries_at_most(*parent, model, read.value_or(Budget::all())));
    row.parent_entries += entries;
  }
  return {};
}

}  // namespace

Task<Result<PutPlanner::Planned>> PutPlanner::plan(const Tenant& tenant, msg::BeginPut request,
                                                   const Connection& from) {
  auto put = std::make_shared<OpenPut>();
  PRECIS_CO_ASSIGN(put->model, parts_.catalog.model(tenant.name, request.model));
  if (request.tokens.empty()) {
    co_return Status::invalid("tokens is empty; a put needs at least one");
  }
  PRECIS_CO_TRY(PathHasher::check(request.tokens.size(), put->model.block_tokens));
  const Status settled = settle(tenant, request, *put);
  put->owner = tenant.owner(&from);
  const Digest root = path_root(tenant.name, tenant.salt, request.model, request.adapter);
  std::vector<TokenId> tokens = std::exchange(request.tokens, {});
  co_return co_await parts_.paths.with(
      tenant.owner(&from), root, std::move(tokens), put->model.block_tokens,
      [&](const TokenPath& path) {
        Planned planned{put, settled};
        if (request.writers > 1) {
          put->joint_name = joint_name(request, path.tip(path.tokens.size()), path.tokens.size());
        }
        if (settled.ok()) planned.status = place(tenant, request, path, *put);
        return Result<Planned>(std::move(planned));
      });
}

// Sets recipe and budget: the request's, else those of the narrowest scope that sets them.
Status PutPlanner::settle(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put) {
  const msg::BudgetRow defaults =
      parts_.catalog.budgets(tenant.name, {request.model}, parts_.configured).effective;
  PRECIS_ASSIGN(put.recipe,
                parse_recipe(request.recipe.empty() ? defaults.recipe : request.recipe));
  PRECIS_TRY(equip(tenant, request.model, put));
  put.row.recipe = canonical_recipe(put.recipe);
  put.row.preset = put.recipe.preset;
  put.row.budget = request.budget ? *request.budget : defaults.keep.value_or(Budget::all());
  return {};
}

// Finds the profile and the projections that the recipe needs.
Status PutPlanner::equip(const Tenant& tenant, const Digest& model, OpenPut& put) {
  if (put.recipe.needs_profile()) {
    PRECIS_ASSIGN(auto found, parts_.catalog.find_profile(tenant.name, model, put.recipe));
    put.profile = std::move(found.profile);
    // A name may refer to another profile later, so the recipe records this profile's digest.
    put.recipe.profile = found.digest.hex();
  }
  if (!put.recipe.needs_o_proj()) return {};
  put.part = Projections::part_of(put.recipe);
  for (std::uint32_t l = 0; l < put.model.num_layers; ++l) {
    auto row = parts_.catalog.projection(tenant.name, model, l);
    if (!row.ok()) return row.status().with_context("the recipe needs output projections");
    put.projections.push_back(std::move(row).value());
  }
  return {};
}

// Sets the segment's tokens, its parent and its id.
Status PutPlanner::place(const Tenant& tenant, const msg::BeginPut& request, const TokenPath& path,
                         OpenPut& put) {
  const ModelSpec& model = put.model;
  const std::span<const TokenId> tokens = path.tokens;
  std::vector<Catalog::Row> chain;
  if (request.parent_kind == msg::BeginPut::ParentKind::kAuto) {
    chain = parts_.catalog.parents(tenant.name, path, faithful_for(request.parent_read));
  } else if (request.parent_kind == msg::BeginPut::ParentKind::kSegment) {
    PRECIS_ASSIGN(chain, parts_.catalog.chain(tenant.name, request.parent));
  }
  SegmentRow& row = put.row;
  if (chain.size() >= limits::kChainSegmentsMax) {
    return Status::invalid("the path has " + std::to_string(chain.size()) +
                           " segments before the new one, and a chain may have at most " +
                           std::to_string(limits::kChainSegmentsMax) +
                           "; put the whole path as one segment");
  }
  row.begin = chain.empty() ? 0 : chain.back()->end;
  row.end = static_cast<std::uint32_t>(tokens.size());
  if (row.begin >= row.end) {
    return Status::invalid("parent " + request.parent.hex() + " ends at token " +
                           std::to_string(row.begin) + ", the path has only " +
                           std::to_string(row.end) + "; a put needs tokens past its parent's end");
  }
  const Digest tip_at_begin = path.tip(row.begin);
  if (!chain.empty() && (chain.back()->tip != tip_at_begin || chain.back()->root != path.root)) {
    return Status::invalid("parent " + request.parent.hex() + " does not hold tokens " +
                           tokens_text(0, row.begin) + " of this path");
  }
  row.parent = chain.empty() ? SegmentId{} : chain.back()->id;
  PRECIS_TRY(note_parents(chain, request.parent_read, model, row));
  row.tenant = tenant.name;
  row.model = request.model;
  row.adapter = request.adapter;
  row.root = path.root;
  row.tip = path.tip(row.end);
  row.blocks.assign(path.blocks.begin() + row.begin / model.block_tokens, path.blocks.end());
  row.tail.assign(tokens.end() - row.end % model.block_tokens, tokens.end());
  row.id = segment_id({tip_at_begin, row.begin, row.tip, row.end, row.parent, row.parent_read},
                      put.recipe, row.budget);
  row.original_bytes = model.token_bytes() * put.num_tokens();
  PRECIS_ASSIGN(put.entries,
                budget_entries(put.recipe, model, put.num_tokens(), row.budget, row.begin));
  // A put restores what a trim removed, and replaces a segment that was computed over fewer
  // entries.
  const auto stored = parts_.catalog.segment(tenant.name, row.id);
  put.already_stored = stored.ok() && is_as_good(**stored, row);
  if (put.already_stored) {  // nothing will be pushed
    put.drop_kept();
    return {};
  }
  put.layers.resize(model.num_layers);
  put.floors.resize(model.num_layers);
  put.mass.resize(model.num_layers);
  return {};
}

Status PutPlanner::no_room(const OpenPut& put, const std::string& bytes) const {
  return Status::out_of_space("the put needs " + bytes + " B of memory (one layer and " +
                              counted(put.entries, "entry", "entries") + "), memory_bytes is " +
                              std::to_string(parts_.arena_bytes) +
                              "; keep fewer entries, or raise memory_bytes");
}

Task<Status> PutPlanner::make_joiner(OpenPut& put) {
  const std::size_t least = put.entries_bytes_max();
  if (put.entries > kSharedToRefuseMax && least > parts_.arena_bytes) {
    co_return no_room(put, "more than " + std::to_string(least));
  }
  const auto make = [&]() -> Status {
    const kernels::SegmentDims dims{put.model.num_layers, put.model.num_kv_heads, put.num_tokens(),
                                    put.row.begin};
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
