#include "cachesvc/pipeline/put_memory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/pipeline/put_records.h"

namespace precis {

PutMemory::PutMemory(const PutParts& parts, const OpenPuts& puts) : parts_(parts), puts_(puts) {
  parts_.memory.on_unserved([this] { spawn(compact_all()); });
}

PutMemory::~PutMemory() {
  parts_.memory.on_unserved([] {});
}

Task<Status> PutMemory::take(std::shared_ptr<OpenPut> owner, std::uint32_t index,
                             const Connection& from) {
  using Part = StagedLayer::Part;
  OpenPut& put = *owner;
  PutLayer& layer = put.layers[index];
  // Acquires everything at once, including what later pieces of the layer ask for during the wait.
  // If several layers of a put each held a part of their memory, they would wait for each other.
  // Memory for the records is included, so compression never waits for memory.
  bool entries = false, observations = false, reads_projection = false;
  const auto wants = [&] {
    entries = layer.rows->needs(Part::kEntries);
    observations = layer.rows->needs(Part::kObservations);
    std::vector<PayloadMemory::Want> all;
    if (observations) {
      all.push_back({layer.rows->size_bytes(Part::kObservations), Arena::End::kHigh});
    }
    if (!entries) return all;
    all.push_back({layer.rows->size_bytes(Part::kEntries), Arena::End::kHigh});
    all.push_back({put.records_bytes_max(index)});
    if (!put.projections.empty()) {
      layer.projection = parts_.projections.find(put.projections[index], put.part);
      reads_projection = layer.projection == nullptr;
    }
    if (reads_projection) all.push_back({put.projection_bytes(index), Arena::End::kHigh});
    return all;
  };
  const std::string where = "layer " + std::to_string(index);
  const Owner whose{put.row.tenant, put.owner.weight, &from};
  const auto now = wants();
  if (now.empty()) co_return Status();
  auto memory = parts_.memory.try_acquire(now);
  if (memory.status().code() == StatusCode::kOutOfSpace) {
    memory = co_await parts_.memory.acquire(wants, whose, [&put] { return !put.failure.ok(); });
  }
  if (!memory.ok()) layer.projection = nullptr;
  if (!memory.ok()) co_return memory.status().with_context(where);
  const auto take_last = [&memory] {
    auto last = std::move(memory->back());
    memory->pop_back();
    return last;
  };
  if (reads_projection) {
    auto read =
        co_await parts_.projections.read(put.projections[index], put.part, take_last(), whose);
    if (!read.ok()) co_return read.status().with_context(where);
    layer.projection = std::move(read).value();
  }
  if (entries) {
    layer.records = take_last();
    layer.rows->give_memory(Part::kEntries, take_last());
  }
  if (observations) layer.rows->give_memory(Part::kObservations, take_last());
  co_return Status();
}

// Repeats until no records were moved and no memory came free meanwhile.
Task<void> PutMemory::compact_all() {
  if (wanted_++ > 0) co_return;
  for (std::size_t seen = 0; seen != wanted_;) {
    seen = wanted_;
    for (const auto& put : puts_.all()) {
      // A committing put is skipped: its records are moving into the hot tier.
      if (put->committing || !parts_.memory.is_awaited()) continue;
      if (std::ranges::any_of(put->layers, &PutLayer::is_compressed)) co_await compact(put);
    }
  }
  wanted_ = 0;
}

// Evicts unused layers first, then compacts, and only then lets waiting requests try: their own
// evictions could leave a hole between records. A move may free a range below another put's
// records, so all puts are compacted again after it.
Task<void> PutMemory::compact(std::shared_ptr<OpenPut> put) {
  begin_work(*put);
  parts_.memory.reclaim();
  const bool moved = co_await run_on(parts_.compute, parts_.loop, [&] {
    return compact_records(*put, parts_.memory.is_awaited());
  });
  parts_.memory.retry();
  if (moved && parts_.memory.is_awaited()) spawn(compact_all());
  end_work(*put);
}

void PutMemory::unpinned(const std::weak_ptr<OpenPut>& owner) {
  const auto put = owner.lock();
  if (put && !put->committing && parts_.memory.is_awaited()) spawn(compact(put));
  parts_.memory.retry();
}

void PutMemory::begin_work(OpenPut& put) {
  ++put.behind;
  ++under_way_;
}

void PutMemory::end_work(OpenPut& put) {
  --under_way_;
  if (--put.behind == 0 && put.idle) return std::exchange(put.idle, nullptr)(true);
  free_failed(put);
}

void PutMemory::free_failed(OpenPut& put) {
  if (put.failure.ok()) return;
  if (put.requests > 0) parts_.loop.post([this] { parts_.memory.drop_unwanted(); });
  if (put.requests > 0 || put.behind > 0) return;
  put.drop_kept();
  put.room.reset();
  parts_.memory.retry();
}

}  // namespace precis
