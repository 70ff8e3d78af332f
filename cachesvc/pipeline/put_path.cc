#include "cachesvc/pipeline/put_path.h"

#include <optional>
#include <utility>

#include "cachesvc/pipeline/compute_time.h"
#include "cachesvc/pipeline/put_records.h"
#include "cachesvc/pipeline/put_state.h"
#include "precis/block_digest.h"
#include "precis/rope.h"

namespace precis {
namespace {

// As many as the CPU compresses at a time. A third that is next brought nothing.
constexpr std::size_t kInPlaceMax = 2;

// "layer 3 (tokens 5 to 9), layers 5-29": those that were not pushed whole; empty if none.
std::string missing_layers(const PutPath::Put& put) {
  const auto& layers = put.layers;
  std::string missing;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].compressed) continue;
    const std::size_t first = l;
    if (!layers[l].staged) {
      const auto is_absent = [&](std::size_t at) {
        return at < layers.size() && !layers[at].compressed && !layers[at].staged;
      };
      while (is_absent(l + 1)) ++l;
    }
    if (!missing.empty()) missing += ", ";
    missing += (l > first ? "layers " : "layer ") + std::to_string(first);
    if (l > first) missing += "-" + std::to_string(l);
    if (layers[l].staged) missing += " (" + layers[l].staged->missing() + ")";
  }
  return missing;
}

}  // namespace

PutPath::PutPath(Parts parts)
    : parts_(std::move(parts)), compressors_(parts_.backend), in_place_(parts_.loop, kInPlaceMax) {
  parts_.memory.on_in_vain([this] { spawn(make_way_for_waiter()); });
}

PutPath::~PutPath() {
  parts_.memory.on_in_vain([] {});
}

// ---- begin --------------------------------------------------------------------------------------

Task<Result<std::shared_ptr<PutPath::Put>>> PutPath::begin(const Tenant& tenant,
                                                           msg::BeginPut request,
                                                           const Connection& from) {
  const std::uint32_t asked_writers = request.writers;
  PRECIS_CO_ASSIGN(const Planned planned, co_await plan(tenant, std::move(request), from));
  // This writer joins a put that others have begun meanwhile, as it was when they began it.
  if (auto other = asked_writers > 1 ? find_joint(planned.joint_name) : nullptr) {
    PRECIS_CO_TRY(co_await other->joint->join());
    co_return other;
  }
  PRECIS_CO_TRY(planned.status);
  const std::shared_ptr<Put>& begun = planned.put;
  Put& put = *begun;
  put.count = std::make_unique<PutCount>(parts_.metrics);
  // Of what is stored already nothing is written together.
  const std::uint32_t writers = put.already_stored ? 1 : asked_writers;
  put.joint = std::make_shared<JointPut>(parts_.loop, writers);
  put.joint_name = planned.joint_name;
  std::erase_if(open_, [](const auto& each) { return each.expired(); });
  open_.push_back(begun);
  auto room = co_await find_room(put, tenant, from);
  put.failure = room.status();
  put.joint->begun(room.status());
  PRECIS_CO_ASSIGN(put.room, std::move(room));
  put.heard = std::chrono::steady_clock::now();
  co_return begun;
}

// What every writer of a put asks for alike. What follows from it, the parent say, may be another
// for who comes later, so who joins takes it as it was. The tip names tenant, model and tokens.
Digest PutPath::joint_name(const msg::BeginPut& without_tokens, const Digest& tip,
                           std::size_t end) {
  std::vector<std::byte> bytes = encode(msg::Request{end, without_tokens});
  const Bytes name = std::as_bytes(std::span(tip.bytes));
  bytes.insert(bytes.end(), name.begin(), name.end());
  return sha256(bytes);
}

std::shared_ptr<PutPath::Put> PutPath::find_joint(const Digest& name) const {
  for (const auto& each : open_) {
    auto put = each.lock();
    if (!put || put->joint->writers() == 1 || put->joint_name != name) continue;
    if (put->failure.ok() && !put->joint->is_full()) return put;
  }
  return nullptr;
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

Status PutPath::abort(Put& put) {
  if (put.committing) return Status::invalid("the put is being committed and can't be given up");
  if (put.failure.ok()) {
    put.failure = Status::canceled("the put was given up");
    if (put.joint->writers() > 1) {
      put.failure = Status::unavailable("one of the " + std::to_string(put.joint->writers()) +
                                        " writers of the put gave it up or left; put again");
    }
  }
  put.joint->give_up(put.failure);
  let_go(put);
  return {};
}

bool PutPath::is_silent(const Put& put, std::chrono::steady_clock::time_point since) {
  return put.requests == 0 && put.heard < since;
}

// ---- ingest -------------------------------------------------------------------------------------

Task<Status> PutPath::push(std::shared_ptr<Put> put, msg::PushLayer piece, Connection& from) {
  Status taken;
  {
    const Put::Busy busy(*put);
    taken = co_await take_in(put, std::move(piece), from);
  }
  // One that waited for memory in vain may come again.
  if (taken.ok() || taken.code() == StatusCode::kRejected) {
    put->heard = std::chrono::steady_clock::now();
  }
  let_go(*put);
  co_return taken;
}

Task<Status> PutPath::take_in(std::shared_ptr<Put> put, msg::PushLayer piece, Connection& from) {
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

  if (co_await compress_in_place(put, piece, from)) co_return put->failure;

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
  if (layer.staged->complete()) spawn(compress_staged(put, piece.layer));
  co_return Status();
}

// Not behind layers that were staged: a client can't have its memory back while it is read or next,
// which then takes no longer than two copies.
Task<bool> PutPath::compress_in_place(std::shared_ptr<Put> put, const msg::PushLayer& piece,
                                      Connection& from) {
  if (!put->is_quick() || parts_.backend.expects_memory()) co_return false;
  if (!put->layers[piece.layer].staged->is_whole(piece)) co_return false;
  co_await in_place_.enter();
  const bool waits = compressing_staged_ > 0;
  const bool reads = put->failure.ok() && !waits && read_in_place(*put, piece, from);
  if (reads) co_await compress(put, piece.layer);
  in_place_.leave();
  if (reads && put->failure.ok()) {
    parts_.metrics.in_place_bytes +=
        static_cast<std::int64_t>(put->row.original_bytes / put->model.num_layers);
  }
  co_return reads;
}

bool PutPath::read_in_place(Put& put, const msg::PushLayer& piece, Connection& from) {
  Put::Layer& layer = put.layers[piece.layer];
  auto memory = parts_.memory.try_acquire({{put.records_bytes_max(piece.layer)}});
  if (!memory.ok() || !layer.staged->read_in_place(piece, from)) return false;
  layer.records = std::move(memory->front());
  return true;
}

// ---- compress -----------------------------------------------------------------------------------

Task<void> PutPath::compress_staged(std::shared_ptr<Put> put, std::uint32_t layer) {
  ++compressing_staged_;
  co_await compress(put, layer);
  --compressing_staged_;
}

Task<void> PutPath::compress(std::shared_ptr<Put> put, std::uint32_t layer) {
  ++put->behind;
  ++compressing_;
  const Status status = co_await compress_layer(*put, layer);
  if (!status.ok() && put->failure.ok()) put->failure = status;
  put->layers[layer].staged.reset();
  put->layers[layer].projection.reset();
  // Records that the store is writing lie still, whatever hole is beside them.
  if (parts_.memory.is_awaited() || !put->final_when_encoded()) co_await make_way(put);
  --compressing_;
  end_behind(*put);
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
  // For this layer alone: those of all may take megabytes, for each put under way.
  const auto rope =
      put.recipe.needs_rope() ? rope_frequencies(put.model, index) : std::vector<double>();
  input.rope_frequencies = rope;
  if (layer.projection) {
    input.o_proj = Projections::view(*put.projections[index], put.part, layer.projection->bytes());
  }
  PRECIS_ASSIGN(const CompressorPool::Lent compressor, compressors_.take());
  std::optional<kernels::OrderedLayer> ordered;
  {
    const ComputeTime timed(parts_.clock, put.compress_ns);
    PRECIS_ASSIGN(kernels::ScoredLayer scored, kernels::score(*compressor, put.recipe, input));
    PRECIS_ASSIGN(ordered, std::move(scored).order(put.joiner->slots_wanted(index)));
  }
  return join(put, index, std::move(*ordered));
}

// Layers of the put depend on each other here: one at a time, but while one is encoded that none of
// them changes.
Status PutPath::join(Put& put, std::uint32_t index, kernels::OrderedLayer ordered) {
  std::unique_lock lock(put.joining);
  std::optional<ComputeTime> timed(std::in_place, parts_.clock, put.compress_ns);
  Put::Layer& layer = put.layers[index];
  if (put.row.budget.kind == Budget::Kind::kQuality) {
    PRECIS_ASSIGN(const kernels::LayerScores* scores, ordered.scores());
    kernels::LayerMass measured = kernels::measure_mass(scores->scores, put.model.num_kv_heads);
    put.floors[index] = std::move(measured.floors);
    put.mass[index] = measured.mass;
  }
  put.joiner->add(index, ordered.take_turns());
  std::vector<std::uint32_t> counts = put.joiner->counts(index);
  layer.records->shrink(kernels::encoded_bytes(counts, put.model.head_dim, put.model.dtype));
  // Seats that depend on layers to come are placed at commit.
  const auto seats = put.recipe.joins_layers() ? std::vector<std::vector<std::uint32_t>>()
                                               : put.joiner->seats(index);
  if (put.final_when_encoded()) lock.unlock();
  PRECIS_TRY(std::move(ordered).encode(counts, seats, put.row.id, layer.records->bytes()));
  if (!lock.owns_lock()) {
    timed.reset();
    lock.lock();
  }
  layer.counts = std::move(counts);  // from now on its records may move
  if (put.final_when_encoded()) write_ahead(put, index);
  return trim_earlier(put, index);
}

// The store writes records that are final while other layers come. It shares them: they stay where
// they are until they are written, also where the put has ended before.
void PutPath::write_ahead(Put& put, std::uint32_t index) {
  Put::Layer& layer = put.layers[index];
  layer.being_written = std::make_shared<std::atomic<bool>>(true);
  const auto let_go = [this, &loop = parts_.loop, records = layer.records,
                       being_written = layer.being_written,
                       owner = put.weak_from_this()](const void*) mutable {
    records.reset();
    being_written->store(false);
    loop.post([this, owner] { may_move(owner); });
  };
  layer.stored = parts_.catalog.stage({layer.records->bytes(), {layer.records.get(), let_go}});
}

void PutPath::end_behind(Put& put) {
  if (--put.behind == 0 && put.idle) return std::exchange(put.idle, nullptr)(true);
  let_go(put);
}

// ---- commit -------------------------------------------------------------------------------------

Task<Result<msg::SegmentInfo>> PutPath::commit(std::shared_ptr<Put> put, JointPut::Writer writer,
                                               Durability durability) {
  PRECIS_CO_TRY(put->failure);
  auto info = co_await put->joint->agree(
      writer, durability, [&](Durability strongest) { return carry_out(put, strongest); });
  if (info.ok()) put->heard = std::chrono::steady_clock::now();
  let_go(*put);
  // Who asked again may have asked for more than what was carried out.
  if (info.ok() && put->durability < durability) PRECIS_CO_TRY(co_await harden(*put, durability));
  co_return info;
}

Task<Result<msg::SegmentInfo>> PutPath::carry_out(std::shared_ptr<Put> put, Durability durability) {
  const SegmentRow& row = put->row;
  const Put::Busy busy(*put);
  put->committing = true;
  if (put->already_stored) {
    Status hardened = co_await harden(*put, durability);
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
    if (!stored.ok()) may_move(put);
    if (!stored.ok()) co_return stored;
  }
  put->durability = durability;
  put->count->committed = true;
  co_return parts_.catalog.info(row.tenant, row.id, /*with_plan=*/true);
}

Task<Status> PutPath::harden(const Put& put, Durability durability) {
  co_return co_await run_on(parts_.storage, parts_.loop, put.owner, [&] {
    return parts_.catalog.harden(put.row.tenant, put.row.id, durability);
  });
}

Task<Status> PutPath::store(Put& put, Durability durability) {
  SegmentRow& row = put.row;
  if (const std::string missing = missing_layers(put); !missing.empty()) {
    co_return Status::invalid("not everything was pushed: " + missing +
                              " to come; push the rest, then commit");
  }
  if (!put.placed) {
    PRECIS_CO_TRY(co_await run_on(parts_.compute, parts_.loop, [&] {
      const ComputeTime timed(parts_.clock, put.compress_ns);
      return place_seats(put, parts_.backend);
    }));
    put.placed = true;
  }
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

  PRECIS_CO_TRY(co_await run_on(parts_.storage, parts_.loop, put.owner,
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
