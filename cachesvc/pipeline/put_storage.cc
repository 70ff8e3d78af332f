#include "cachesvc/pipeline/put_storage.h"

#include <chrono>

#include "cachesvc/pipeline/compute_time.h"
#include "cachesvc/pipeline/put_records.h"

namespace precis {

Task<Status> PutStorage::store(OpenPut& put, Durability durability) {
  if (const std::string missing = put.missing_layers(); !missing.empty()) {
    co_return Status::invalid("the put is not complete: it lacks " + missing +
                              "; push the rest, then commit");
  }
  PRECIS_CO_TRY(co_await place(put));
  const std::vector<Catalog::Layer> payload = make_row(put);
  SegmentRow& row = put.row;
  PRECIS_CO_TRY(co_await run_on(parts_.storage, parts_.loop, put.owner,
                                [&] { return parts_.catalog.commit(row, payload, durability); }));
  put.disk_quota.reset();  // what is stored counts by itself
  parts_.prefill.put_took(row.tenant, row.model, put.num_tokens(),
                          std::chrono::duration<double>(parts_.clock.now() - put.begun).count());
  co_return keep_hot(put);
}

Task<Status> PutStorage::harden(const OpenPut& put, Durability durability) {
  co_return co_await run_on(parts_.storage, parts_.loop, put.owner, [&] {
    return parts_.catalog.harden(put.row.tenant, put.row.id, durability);
  });
}

Task<Status> PutStorage::place(OpenPut& put) {
  if (put.placed) co_return Status();
  const PutTimes::Work placing(put.times, PutStage::kCompress);
  PRECIS_CO_TRY(co_await run_on(parts_.compute, parts_.loop, [&] {
    const ComputeTime timed(parts_.clock, put.compress_ns);
    return place_seats(put, parts_.backend);
  }));
  put.placed = true;
  co_return Status();
}

// Returns the records of all layers. Those that are not being written yet are final now.
std::vector<Catalog::Layer> PutStorage::make_row(OpenPut& put) {
  SegmentRow& row = put.row;
  row.plan = {put.model.num_layers, put.model.num_kv_heads, {}};
  row.layer_bytes.clear();
  row.stored_bytes = 0;
  std::vector<Catalog::Layer> payload;
  for (PutLayer& layer : put.layers) {
    if (layer.state() == LayerState::kCompressed) {
      compression_.write(put, layer);
      layer.write();
    }
    payload.push_back({layer.records->bytes(), layer.stored});
    row.plan.counts.insert(row.plan.counts.end(), layer.counts.begin(), layer.counts.end());
    row.layer_bytes.push_back(layer.records->bytes().size());
    row.stored_bytes += layer.records->bytes().size();
  }
  parts_.metrics.compressed_out_bytes += static_cast<std::int64_t>(row.stored_bytes);
  row.compress_seconds = static_cast<double>(put.compress_ns.load()) * 1e-9;
  row.created_unix_ms = parts_.clock.unix_ms();
  return payload;
}

// Two equal puts may commit at the same time. The records of the first are stored, and only those
// may enter the hot tier.
Status PutStorage::keep_hot(OpenPut& put) {
  const SegmentRow& row = put.row;
  const auto stored = parts_.catalog.segment(row.tenant, row.id);
  if (!stored.ok()) put.fail(stored.status());  // removed at once: there is nothing to commit again
  if (!stored.ok() || !(**stored == row)) return stored.status();
  if (put.room) put.room->shrink(put.kept_bytes());  // the records count as the tier's
  for (std::uint32_t l = 0; l < put.layers.size(); ++l) {
    parts_.hot_tier.insert(row.tenant, row.id, l, *stored, put.layers[l].commit());
  }
  parts_.memory.retry();  // layers in the hot tier can be evicted
  return {};
}

}  // namespace precis
