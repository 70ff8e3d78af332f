#include "cachesvc/pipeline/put_path.h"

#include <utility>

#include "cachesvc/pipeline/compute_time.h"
#include "cachesvc/pipeline/put_records.h"
#include "cachesvc/pipeline/put_state.h"
#include "precis/block_digest.h"
#include "precis/limits.h"
#include "precis/recipe.h"
#include "precis/rope.h"

namespace precis {
namespace {

std::string tokens_text(std::uint32_t begin, std::uint32_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

}  // namespace

// ---- begin --------------------------------------------------------------------------------------

Result<std::shared_ptr<PutPath::Put>> PutPath::begin(const Tenant& tenant,
                                                     const msg::BeginPut& request) {
  auto put = std::make_shared<Put>();
  PRECIS_ASSIGN(put->model, parts_.catalog.model(tenant.name, request.model));
  PRECIS_TRY(settle(tenant, request, *put));
  PRECIS_TRY(place(tenant, request, *put));
  put->layers.resize(put->model.num_layers);
  put->open = std::make_unique<GaugeHold>(parts_.metrics.puts_open, 1);
  ++parts_.metrics.puts_begun;
  return put;
}

// Recipe and budget: the request's, else the narrowest scope's that says something.
Status PutPath::settle(const Tenant& tenant, const msg::BeginPut& request, Put& put) {
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

// What the recipe needs beside what is pushed.
Status PutPath::equip(const Tenant& tenant, const Digest& model, Put& put) {
  if (put.recipe.needs_profile()) {
    PRECIS_ASSIGN(put.profile, parts_.catalog.find_profile(tenant.name, model, put.recipe));
    // Names may come to mean other tables; the segment is of this one.
    put.recipe.profile = profile_digest(*put.profile).hex();
  }
  if (put.recipe.needs_rope()) put.rope = rope_frequencies(put.model);
  if (!put.recipe.needs_o_proj()) return {};
  put.part = Projections::part_of(put.recipe);
  for (std::uint32_t l = 0; l < put.model.num_layers; ++l) {
    auto row = parts_.catalog.projection(tenant.name, model, l);
    if (!row.ok()) return row.status().with_context("the recipe weighs values by what they write");
    put.projections.push_back(std::move(row).value());
  }
  return {};
}

// Where the segment lies on its path, on what it stands, and what it is called.
Status PutPath::place(const Tenant& tenant, const msg::BeginPut& request, Put& put) {
  const ModelSpec& model = put.model;
  if (request.tokens.empty()) return Status::invalid("tokens is empty; a put needs at least one");
  const Digest root = path_root(tenant.name, tenant.salt, request.model, request.adapter);
  std::vector<Catalog::Row> chain;
  if (request.parent_kind == msg::BeginPut::ParentKind::kAuto) {
    chain = parts_.catalog.parents(tenant.name, root, request.tokens, model.block_tokens);
  } else if (request.parent_kind == msg::BeginPut::ParentKind::kSegment) {
    PRECIS_ASSIGN(chain, parts_.catalog.chain(tenant.name, request.parent));
  }
  SegmentRow& row = put.row;
  if (chain.size() >= limits::kChainSegmentsMax) {
    return Status::invalid("the path has " + std::to_string(chain.size()) +
                           " segments below the new one, at most " +
                           std::to_string(limits::kChainSegmentsMax) +
                           " stand on each other; put the whole path as one segment");
  }
  row.begin = chain.empty() ? 0 : chain.back()->end;
  row.end = static_cast<std::uint32_t>(request.tokens.size());
  if (row.begin >= row.end) {
    return Status::invalid("parent " + request.parent.hex() + " ends at token " +
                           std::to_string(row.begin) + ", the path has only " +
                           std::to_string(row.end) + "; a put needs tokens past its parent's end");
  }
  const std::span<const TokenId> tokens(request.tokens);
  const Digest tip_at_begin = path_tip(root, tokens.first(row.begin), model.block_tokens);
  if (!chain.empty() && (chain.back()->tip != tip_at_begin || chain.back()->root != root)) {
    return Status::invalid("parent " + request.parent.hex() + " does not hold tokens " +
                           tokens_text(0, row.begin) + " of this path");
  }
  row.parent = chain.empty() ? SegmentId{} : chain.back()->id;
  row.parent_read = request.parent_read;
  row.tenant = tenant.name;
  row.model = request.model;
  row.adapter = request.adapter;
  row.root = root;
  row.tip = path_tip(root, tokens, model.block_tokens);
  row.blocks = block_digests(root, tokens, model.block_tokens);
  row.blocks.erase(row.blocks.begin(), row.blocks.begin() + row.begin / model.block_tokens);
  row.tail.assign(tokens.end() - row.end % model.block_tokens, tokens.end());
  row.id = segment_id({tip_at_begin, row.begin, row.tip, row.end, row.parent, row.parent_read},
                      put.recipe, row.budget);
  row.original_bytes = model.token_bytes() * put.num_tokens();
  PRECIS_ASSIGN(put.entries,
                budget_entries(put.recipe, model, put.num_tokens(), row.budget, row.begin));
  // One that was trimmed is put again, which gives back what it lost.
  const auto stored = parts_.catalog.segment(tenant.name, row.id);
  put.already_stored = stored.ok() && !(*stored)->trimmed;

  PRECIS_ASSIGN(put.joiner,
                kernels::Joiner::make(
                    put.recipe, {model.num_layers, model.num_kv_heads, put.num_tokens(), row.begin},
                    put.entries, put.profile.get()));
  put.floors.resize(model.num_layers);
  put.mass.resize(model.num_layers);
  if (put.staged_bytes_max() > parts_.arena_bytes) {
    return Status::out_of_space("the put needs " + std::to_string(put.staged_bytes_max()) +
                                " B of memory (one layer and " + std::to_string(put.entries) +
                                " entries), memory_bytes is " + std::to_string(parts_.arena_bytes) +
                                "; keep fewer entries, or raise memory_bytes");
  }
  return {};
}

msg::PutBegun PutPath::describe(const Put& put) {
  msg::PutBegun begun;
  begun.begin = put.row.begin;
  begun.end = put.row.end;
  begun.parent = put.row.parent;
  begun.segment = put.row.id;
  begun.already_stored = put.already_stored;
  begun.recipe = put.row.recipe;
  begun.entries = put.entries;
  return begun;
}

std::size_t PutPath::staged_bytes_max(const Put& put) {
  return put.already_stored ? 0 : put.staged_bytes_max();
}

Status PutPath::abort(Put& put) {
  if (put.committing) return Status::invalid("the put is being committed and can't be given up");
  if (put.failure.ok()) put.failure = Status::canceled("the put was given up");
  return {};
}

// ---- ingest -------------------------------------------------------------------------------------

Task<Status> PutPath::push(std::shared_ptr<Put> put, msg::PushLayer piece, Connection& from) {
  PRECIS_CO_TRY(put->failure);
  if (put->already_stored) co_return Status();
  if (put->committing)
    co_return Status::invalid("the put is being committed, nothing more fits in");
  if (piece.layer >= put->layers.size()) {
    co_return Status::invalid("layer is " + std::to_string(piece.layer) + ", the model has " +
                              std::to_string(put->layers.size()));
  }
  Put::Layer& layer = put->layers[piece.layer];
  if (layer.compressed || (layer.staged && layer.staged->complete())) {
    co_return Status::invalid("layer " + std::to_string(piece.layer) +
                              " was pushed before, each may be pushed once");
  }
  if (!layer.staged) {
    layer.staged =
        std::make_unique<StagedLayer>(put->model, put->recipe, piece.layer, put->num_tokens());
  }
  PRECIS_CO_TRY(layer.staged->claim(piece));

  if (put->failure.ok() && read_in_place(*put, piece, from)) {
    co_await compress(put, piece.layer);
    co_return put->failure;
  }

  // One piece asks for the layer's memory, the others wait for it.
  while (layer.allocating) {
    co_await completion<bool>([&](auto done) { layer.waiting_for_memory.push_back(done); });
  }
  Status taken;
  if (put->failure.ok()) {
    layer.allocating = true;
    taken = co_await take_memory(put, piece.layer, from);
    layer.allocating = false;
  }
  const bool later = taken.code() == StatusCode::kRejected;  // which is no failure of the put
  if (later) layer.staged->unclaim(piece);
  if (!later && put->failure.ok()) put->failure = taken;
  for (auto& done : std::exchange(layer.waiting_for_memory, {})) done(true);
  PRECIS_CO_TRY(put->failure);
  PRECIS_CO_TRY(taken);

  const auto pulled = co_await layer.staged->pull(piece, from, parts_.registration);
  if (!pulled.ok() && put->failure.ok()) put->failure = pulled.status();
  PRECIS_CO_TRY(put->failure);
  parts_.metrics.pulled_bytes += static_cast<std::int64_t>(*pulled);
  if (layer.staged->complete()) spawn(compress(put, piece.layer));
  co_return Status();
}

// Not where that would take long or has to wait: the client can't have its memory back meanwhile.
bool PutPath::read_in_place(Put& put, const msg::PushLayer& piece, Connection& from) {
  if (!put.is_quick() || parts_.backend.expects_memory()) return false;
  Put::Layer& layer = put.layers[piece.layer];
  auto memory = parts_.memory.try_acquire({{put.records_bytes_max(piece.layer)}});
  if (!memory.ok() || !layer.staged->read_in_place(piece, from)) return false;
  layer.records = std::move(memory->front());
  parts_.metrics.in_place_bytes +=
      static_cast<std::int64_t>(put.model.token_bytes() / put.model.num_layers * put.num_tokens());
  return true;
}

Task<Status> PutPath::take_memory(std::shared_ptr<Put> owner, std::uint32_t index,
                                  const Connection& from) {
  Put& put = *owner;
  Put::Layer& layer = put.layers[index];
  for (const auto part : {StagedLayer::Part::kEntries, StagedLayer::Part::kObservations}) {
    if (!layer.staged->needs(part)) continue;
    // Room for the records comes with the entries, so that compression never waits for memory.
    std::vector<Memory::Want> wants{{layer.staged->size_bytes(part), Arena::End::kHigh}};
    bool reads_projection = false;
    if (part == StagedLayer::Part::kEntries) {
      wants.push_back({put.records_bytes_max(index)});
      if (!put.projections.empty()) {
        layer.projection = parts_.projections.find(put.projections[index], put.part);
        reads_projection = layer.projection == nullptr;
      }
      if (reads_projection) wants.push_back({put.projection_bytes(index), Arena::End::kHigh});
    }
    const std::string where = "layer " + std::to_string(index);
    auto memory = parts_.memory.try_acquire(wants);
    if (memory.status().code() == StatusCode::kOutOfSpace) {
      parts_.loop.post([this, owner] { spawn(make_way(owner)); });  // once this waits
      memory = co_await parts_.memory.acquire(std::move(wants), &from);
    }
    if (!memory.ok()) co_return memory.status().with_context(where);
    if (reads_projection) {
      auto read = co_await parts_.projections.read(put.projections[index], put.part,
                                                   std::move(memory->back()));
      if (!read.ok()) co_return read.status().with_context(where);
      layer.projection = std::move(read).value();
      memory->pop_back();
    }
    if (part == StagedLayer::Part::kEntries) {
      layer.records = std::move(memory->back());
      memory->pop_back();
    }
    layer.staged->give_memory(part, std::move(memory->front()));
  }
  co_return Status();
}

// ---- compress -----------------------------------------------------------------------------------

Task<void> PutPath::compress(std::shared_ptr<Put> put, std::uint32_t layer) {
  ++put->behind;
  ++compressing_;
  const Status status = co_await compress_layer(*put, layer);
  if (!status.ok() && put->failure.ok()) put->failure = status;
  put->layers[layer].staged.reset();
  put->layers[layer].projection.reset();
  co_await make_way(put);
  --compressing_;
  if (--put->behind == 0 && put->idle) std::exchange(put->idle, nullptr)(true);
}

Task<Status> PutPath::compress_layer(Put& put, std::uint32_t index) {
  PRECIS_CO_TRY(
      co_await run_on(parts_.compute, parts_.loop, [&]() -> Status { return stages(put, index); }));
  Put::Layer& layer = put.layers[index];
  layer.compressed = true;
  parts_.metrics.compressed_in_bytes +=
      static_cast<std::int64_t>(put.row.original_bytes / put.model.num_layers);
  co_return Status();
}

Status PutPath::stages(Put& put, std::uint32_t index) {
  Put::Layer& layer = put.layers[index];
  kernels::LayerInput input = layer.staged->input(put.row.begin);
  input.entries = put.entries;
  if (!put.rope.empty()) input.rope_frequencies = put.rope[index];
  if (layer.projection) {
    input.o_proj = Projections::view(*put.projections[index], put.part, layer.projection->bytes());
  }
  PRECIS_ASSIGN(const CompressorPool::Lent compressor, compressors_.take());
  kernels::LayerTurns turns;
  {
    const ComputeTime timed(parts_.clock, put.compress_ns);
    PRECIS_TRY(compressor->check(put.recipe, input));
    PRECIS_TRY(compressor->score());
    PRECIS_TRY(compressor->select(put.joiner->slots_wanted(index)));
    PRECIS_TRY(compressor->allocate(turns));
  }
  return join(put, index, *compressor, std::move(turns));
}

// From here on layers of the put depend on each other: one at a time.
Status PutPath::join(Put& put, std::uint32_t index, kernels::LayerCompressor& compressor,
                     kernels::LayerTurns turns) {
  const std::lock_guard lock(put.joining);
  const ComputeTime timed(parts_.clock, put.compress_ns);
  Put::Layer& layer = put.layers[index];
  if (put.row.budget.kind == Budget::Kind::kQuality) {
    PRECIS_ASSIGN(const kernels::LayerScores* scores, compressor.scores());
    kernels::LayerMass measured = kernels::measure_mass(scores->scores, put.model.num_kv_heads);
    put.floors[index] = std::move(measured.floors);
    put.mass[index] = measured.mass;
  }
  put.joiner->add(index, std::move(turns));
  layer.counts = put.joiner->counts(index);
  layer.records->shrink(kernels::encoded_bytes(layer.counts, put.model.head_dim, put.model.dtype));
  // Seats that depend on layers to come are placed at commit.
  const auto seats = put.recipe.joins_layers() ? std::vector<std::vector<std::uint32_t>>()
                                               : put.joiner->seats(index);
  PRECIS_TRY(compressor.encode(layer.counts, seats, put.row.id, layer.records->bytes()));
  if (put.final_when_encoded()) write_ahead(put, index);
  return trim_earlier(put, index);
}

// The store writes records that are final while other layers come. It shares them: they stay where
// they are until they are written, also where the put has ended before.
void PutPath::write_ahead(Put& put, std::uint32_t index) {
  Put::Layer& layer = put.layers[index];
  const auto let_go = [this, &loop = parts_.loop, records = layer.records,
                       owner = put.weak_from_this()](const void*) mutable {
    records.reset();
    loop.post([this, owner] { written(owner); });
  };
  layer.stored = parts_.catalog.stage({layer.records->bytes(), {layer.records.get(), let_go}});
}

// Records may move again, or be evicted.
void PutPath::written(const std::weak_ptr<Put>& owner) {
  const auto put = owner.lock();
  // Not once the records are on their way into the hot tier.
  if (put && !put->committing && parts_.memory.is_awaited()) spawn(make_way(put));
  parts_.memory.retry();
}

// Due whenever a wait for memory begins and whenever a layer's staging ends. First what nobody
// reads goes, then the records close ranks, and only then do waiters look: what they evicted
// themselves could lie between records that were closed up before, a hole for good.
Task<void> PutPath::make_way(std::shared_ptr<Put> put) {
  ++put->behind;
  ++compressing_;
  parts_.memory.reclaim();
  co_await run_on(parts_.compute, parts_.loop, [&] {
    close_ranks(*put, parts_.memory.is_awaited());
    return true;
  });
  parts_.memory.retry();
  --compressing_;
  if (--put->behind == 0 && put->idle) std::exchange(put->idle, nullptr)(true);
}

// ---- commit -------------------------------------------------------------------------------------

Task<Result<msg::SegmentInfo>> PutPath::commit(std::shared_ptr<Put> put, Durability durability) {
  const SegmentRow& row = put->row;
  if (put->committing) co_return Status::invalid("the put is being committed already");
  put->committing = true;
  if (put->already_stored) {
    Status hardened = co_await run_on(parts_.storage, parts_.loop, [&] {
      return parts_.catalog.harden(row.tenant, row.id, durability);
    });
    put->committing = false;
    PRECIS_CO_TRY(std::move(hardened));
  } else {
    if (put->behind > 0) {
      co_await completion<bool>(
          [&](std::function<void(bool)> done) { put->idle = std::move(done); });
    }
    Status stored = put->failure;
    if (stored.ok()) stored = co_await store(*put, durability);
    put->committing = false;
    if (!stored.ok()) co_return stored;
  }
  ++parts_.metrics.puts_committed;
  co_return parts_.catalog.info(row.tenant, row.id, /*with_plan=*/true);
}

Task<Status> PutPath::store(Put& put, Durability durability) {
  SegmentRow& row = put.row;
  std::string missing;
  for (std::size_t l = 0; l < put.layers.size(); ++l) {
    const Put::Layer& layer = put.layers[l];
    if (layer.compressed) continue;
    missing += (missing.empty() ? "layer " : ", layer ") + std::to_string(l) +
               (layer.staged ? " (" + layer.staged->missing() + ")" : "");
  }
  if (!missing.empty()) {
    co_return Status::invalid("not everything was pushed: " + missing +
                              " to come; push the rest, then commit");
  }
  PRECIS_CO_TRY(co_await run_on(parts_.compute, parts_.loop, [&] {
    const ComputeTime timed(parts_.clock, put.compress_ns);
    return place_seats(put, parts_.backend);
  }));
  for (std::uint32_t l = 0; l < put.layers.size(); ++l) {
    if (!put.layers[l].stored) write_ahead(put, l);
  }

  std::vector<Catalog::Layer> payload;
  row.plan = {put.model.num_layers, put.model.num_kv_heads, {}};
  row.layer_bytes.clear();
  row.stored_bytes = 0;
  for (const Put::Layer& layer : put.layers) {
    payload.push_back({layer.records->bytes(), layer.stored});
    row.plan.counts.insert(row.plan.counts.end(), layer.counts.begin(), layer.counts.end());
    row.layer_bytes.push_back(layer.records->bytes().size());
    row.stored_bytes += layer.records->bytes().size();
  }
  parts_.metrics.compressed_out_bytes += static_cast<std::int64_t>(row.stored_bytes);
  row.compress_seconds = static_cast<double>(put.compress_ns.load()) * 1e-9;
  row.created_unix_ms = parts_.clock.unix_ms();

  PRECIS_CO_TRY(co_await run_on(parts_.storage, parts_.loop,
                                [&] { return parts_.catalog.commit(row, payload, durability); }));
  // Two equal puts may end at once: the first one's records are stored, and only those may be hot.
  const auto stored = parts_.catalog.segment(row.tenant, row.id);
  if (!stored.ok() || !(**stored == row)) co_return stored.status();
  for (std::uint32_t l = 0; l < put.layers.size(); ++l) {
    parts_.hot_tier.insert(row.id, l, *stored, std::move(put.layers[l].records));
  }
  parts_.memory.retry();  // what is in the hot tier gives way
  co_return Status();
}

}  // namespace precis
