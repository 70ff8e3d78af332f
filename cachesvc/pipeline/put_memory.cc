#include "cachesvc/pipeline/put_memory.h"

#include <string>
#include <utility>
#include <vector>

namespace precis {

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

void PutMemory::begin_work(OpenPut& put) {
  ++put.compressing;
  ++under_way_;
}

void PutMemory::end_work(OpenPut& put) {
  --under_way_;
  if (--put.compressing == 0 && put.idle) return std::exchange(put.idle, nullptr)(true);
  free_failed(put);
}

void PutMemory::free_failed(OpenPut& put) {
  if (put.failure.ok()) return;
  if (put.requests > 0) parts_.loop.post([this] { parts_.memory.drop_unwanted(); });
  if (put.requests > 0 || put.compressing > 0) return;
  put.drop_kept();
  put.room.reset();
  put.disk_quota.reset();
  parts_.memory.retry();
}

}  // namespace precis
