// What the layers of puts lie in: how a piece gets memory for its layer, and how puts give way to
// whoever waits for some.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/pipeline/put_path.h"
#include "cachesvc/pipeline/put_records.h"
#include "cachesvc/pipeline/put_state.h"

namespace precis {

Task<Status> PutPath::take_memory(std::shared_ptr<Put> owner, std::uint32_t index,
                                  const Connection& from) {
  using Part = StagedLayer::Part;
  Put& put = *owner;
  Put::Layer& layer = put.layers[index];
  // All at once, also what later pieces of the layer ask for until it is had: layers of a put that
  // come together, each with a part of its memory, would wait for each other. Room for the records
  // is among it, so that compression never waits for memory.
  bool entries = false, observations = false, reads_projection = false;
  const auto wants = [&] {
    entries = layer.staged->needs(Part::kEntries);
    observations = layer.staged->needs(Part::kObservations);
    std::vector<PayloadMemory::Want> all;
    if (observations) {
      all.push_back({layer.staged->size_bytes(Part::kObservations), Arena::End::kHigh});
    }
    if (!entries) return all;
    all.push_back({layer.staged->size_bytes(Part::kEntries), Arena::End::kHigh});
    all.push_back({put.records_bytes_max(index)});
    if (!put.projections.empty()) {
      layer.projection = parts_.projections.find(put.projections[index], put.part);
      reads_projection = layer.projection == nullptr;
    }
    if (reads_projection) all.push_back({put.projection_bytes(index), Arena::End::kHigh});
    return all;
  };
  const std::string where = "layer " + std::to_string(index);
  const auto now = wants();
  if (now.empty()) co_return Status();
  auto memory = parts_.memory.try_acquire(now);
  if (memory.status().code() == StatusCode::kOutOfSpace) {
    memory = co_await parts_.memory.acquire(wants, Owner{put.row.tenant, put.owner.weight, &from},
                                            [&put] { return !put.failure.ok(); });
  }
  if (!memory.ok()) layer.projection = nullptr;
  if (!memory.ok()) co_return memory.status().with_context(where);
  const auto take_last = [&memory] {
    auto last = std::move(memory->back());
    memory->pop_back();
    return last;
  };
  if (reads_projection) {
    auto read = co_await parts_.projections.read(put.projections[index], put.part, take_last(),
                                                 Owner{put.row.tenant, put.owner.weight, &from});
    if (!read.ok()) co_return read.status().with_context(where);
    layer.projection = std::move(read).value();
  }
  if (entries) {
    layer.records = take_last();
    layer.staged->give_memory(Part::kEntries, take_last());
  }
  if (observations) layer.staged->give_memory(Part::kObservations, take_last());
  co_return Status();
}

// Somebody waits, and what is free may lie in pieces: the records of all puts close ranks, one
// put's after the other's, until none has moved and none came free meanwhile.
Task<void> PutPath::make_way_for_waiter() {
  if (way_wanted_++ > 0) co_return;
  for (std::size_t seen = 0; seen != way_wanted_;) {
    seen = way_wanted_;
    for (const auto& each : std::vector(open_)) {
      const auto put = each.lock();
      // Not once the records are on their way into the hot tier.
      if (!put || put->committing || !parts_.memory.is_awaited()) continue;
      if (std::ranges::any_of(put->layers, &Put::Layer::compressed)) co_await make_way(put);
    }
  }
  way_wanted_ = 0;
}

// First what nobody reads goes, then the records close ranks, and only then do waiters look: what
// they evicted themselves could be a hole. What was below the records may be below another put's
// now.
Task<void> PutPath::make_way(std::shared_ptr<Put> put) {
  ++put->behind;
  ++compressing_;
  parts_.memory.reclaim();
  const bool moved = co_await run_on(parts_.compute, parts_.loop,
                                     [&] { return close_ranks(*put, parts_.memory.is_awaited()); });
  parts_.memory.retry();
  if (moved && parts_.memory.is_awaited()) spawn(make_way_for_waiter());
  --compressing_;
  end_behind(*put);
}

// Records may move again, or be evicted.
void PutPath::may_move(const std::weak_ptr<Put>& owner) {
  const auto put = owner.lock();
  // Not once the records are on their way into the hot tier.
  if (put && !put->committing && parts_.memory.is_awaited()) spawn(make_way(put));
  parts_.memory.retry();
}

// The memory of a put that has failed goes at once, whoever still has it.
void PutPath::let_go(Put& put) {
  if (put.failure.ok()) return;
  if (put.requests > 0) parts_.loop.post([this] { parts_.memory.drop_unwanted(); });
  if (put.requests > 0 || put.behind > 0) return;
  put.drop_kept();
  put.room.reset();
  parts_.memory.retry();
}

}  // namespace precis
