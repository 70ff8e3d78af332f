#include "cachesvc/pipeline/put_path.h"

#include <algorithm>
#include <utility>

namespace precis {

PutPath::PutPath(PutParts parts)
    : parts_(std::move(parts)),
      planner_(parts_),
      memory_(parts_),
      compression_(parts_, memory_),
      storage_(parts_, compression_) {}

// ---- begin --------------------------------------------------------------------------------------

Task<Result<std::shared_ptr<OpenPut>>> PutPath::begin(const Tenant& tenant, msg::BeginPut request,
                                                      const Connection& from, bool traced,
                                                      std::optional<std::uint32_t> shard) {
  const std::uint32_t asked_writers = request.writers;
  PRECIS_CO_ASSIGN(const PutPlanner::Planned planned,
                   co_await planner_.plan(tenant, std::move(request), from, shard));
  // Another writer has begun this put: join it, with the parent and the recipe of its begin.
  if (auto other = asked_writers > 1 ? puts_.find_joint(planned.put->joint_name) : nullptr) {
    PRECIS_CO_TRY(co_await other->joint->join());
    co_return other;
  }
  PRECIS_CO_TRY(planned.status);
  const std::shared_ptr<OpenPut>& put = planned.put;
  put->count = std::make_unique<PutCount>(parts_.metrics);
  if (traced) put->times = std::make_shared<PutTimes>(parts_.clock);
  // A put of a stored segment has a single writer: it has nothing to write.
  const std::uint32_t writers = put->already_stored ? 1 : asked_writers;
  put->joint = std::make_shared<JointPut>(parts_.loop, writers);
  puts_.add(put);
  auto room = co_await planner_.find_room(*put, tenant, from);
  put->failure = room.status();
  put->joint->begun(room.status());
  PRECIS_CO_ASSIGN(put->room, std::move(room));
  put->last_activity = put->begun = parts_.clock.now();
  co_return put;
}

msg::PutBegun PutPath::describe(const OpenPut& put) {
  msg::PutBegun begun;
  begun.begin = put.row.begin;
  begun.end = put.row.end;
  begun.parent = put.row.parent;
  begun.segment = put.row.id;
  begun.already_stored = put.already_stored;
  begun.recipe = put.row.recipe;
  begun.entries = put.entries;
  begun.budget = put.row.budget;
  begun.limited = put.row.budget != put.asked;
  return begun;
}

Status PutPath::abort(OpenPut& put) {
  if (put.committing) return Status::invalid("the put is being committed and can't be aborted");
  const std::uint32_t writers = put.joint->writers();
  put.fail(writers == 1 ? Status::canceled("the put was aborted")
                        : Status::unavailable("one of the " + std::to_string(writers) +
                                              " writers of the put aborted it or left; put again"));
  put.joint->give_up(put.failure);
  memory_.free_failed(put);
  return {};
}

bool PutPath::is_silent(const OpenPut& put, Clock::Time since) {
  return put.requests == 0 && put.last_activity < since;
}

// ---- push ---------------------------------------------------------------------------------------

Task<Status> PutPath::push(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from) {
  Status taken;
  {
    const OpenPut::Busy busy(*put);
    taken = co_await take(put, std::move(piece), from);
  }
  // A piece that got no memory in time may be pushed again, so it counts as activity of the put.
  if (taken.ok() || taken.code() == StatusCode::kRejected) {
    put->last_activity = parts_.clock.now();
  }
  memory_.free_failed(*put);
  co_return taken;
}

Task<Status> PutPath::take(std::shared_ptr<OpenPut> put, msg::PushLayer piece, Connection& from) {
  PRECIS_CO_TRY(put->failure);
  if (put->already_stored) co_return Status();
  if (put->committing) {
    co_return Status::invalid("the put is being committed and takes no more layers");
  }
  if (piece.layer >= put->layers.size()) {
    co_return Status::invalid("layer is " + std::to_string(piece.layer) + ", the model has " +
                              std::to_string(put->layers.size()));
  }
  PutLayer& layer = put->layers[piece.layer];
  if (!layer.takes_pieces()) {
    co_return Status::invalid("layer " + std::to_string(piece.layer) +
                              " is complete already; push each layer once");
  }
  if (layer.state() == LayerState::kAwaited) {
    layer.begin(
        std::make_unique<StagedLayer>(put->model, put->recipe, piece.layer, put->num_tokens()),
        parts_.loop);
  }
  PRECIS_CO_TRY(layer.rows->claim(piece));
  put->count_observations(*layer.rows);
  if (co_await compression_.run_in_place(put, piece, from)) co_return put->failure;
  const PutTimes::Work staging(put->times, PutStage::kStage);
  PRECIS_CO_TRY(co_await take_memory(put, piece, from));
  const auto pulled = co_await layer.rows->pull(piece, from, parts_.registration);
  if (!pulled.ok()) put->fail(pulled.status());
  PRECIS_CO_TRY(put->failure);
  parts_.metrics.pulled_bytes += static_cast<std::int64_t>(*pulled);
  if (layer.rows->complete()) spawn(compression_.run(put, piece.layer));
  co_return Status();
}

Task<Status> PutPath::take_memory(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                                  const Connection& from) {
  PutLayer& layer = put->layers[piece.layer];
  co_await layer.taking_memory->enter();
  Status taken;
  if (put->failure.ok()) taken = co_await memory_.take(put, piece.layer, from);
  layer.taking_memory->leave();
  PRECIS_CO_TRY(put->failure);
  if (taken.code() == StatusCode::kRejected) {  // does not end the put
    layer.rows->unclaim(piece);
  } else if (!taken.ok()) {
    put->fail(taken);
  }
  co_return taken;
}

// ---- commit -------------------------------------------------------------------------------------

Task<Result<msg::SegmentInfo>> PutPath::commit(std::shared_ptr<OpenPut> put,
                                               JointPut::Writer writer, Durability durability,
                                               double prefill_seconds) {
  PRECIS_CO_TRY(put->failure);
  // During a commit, a storage thread reads the row.
  if (!put->committing) {
    put->row.prefill_seconds = std::max(put->row.prefill_seconds, prefill_seconds);
  }
  auto info = co_await put->joint->agree(
      writer, durability, [&](Durability strongest) { return carry_out(put, strongest); });
  if (info.ok()) put->last_activity = parts_.clock.now();
  memory_.free_failed(*put);
  // A repeated request may ask for stronger durability than the commit had.
  if (info.ok() && put->durability < durability) {
    PRECIS_CO_TRY(co_await storage_.harden(*put, durability));
  }
  co_return info;
}

Task<Result<msg::SegmentInfo>> PutPath::carry_out(std::shared_ptr<OpenPut> put,
                                                  Durability durability) {
  const OpenPut::Busy busy(*put);
  put->committing = true;
  Status done;
  if (put->already_stored) {
    done = co_await storage_.harden(*put, durability);
  } else {
    if (put->compressing > 0) {
      co_await completion<bool>([&](auto idle) { put->idle = std::move(idle); });
    }
    done = put->failure;
    if (done.ok()) done = co_await storage_.store(*put, durability);
  }
  put->committing = false;
  PRECIS_CO_TRY(std::move(done));
  put->durability = durability;
  put->count->committed = true;
  auto info = parts_.catalog.info(put->row.tenant, put->row.id, /*with_plan=*/true);
  if (!info.ok()) put->fail(info.status());
  co_return info;
}

}  // namespace precis
