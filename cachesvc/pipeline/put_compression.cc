#include "cachesvc/pipeline/put_compression.h"

#include <optional>
#include <utility>
#include <vector>

#include "cachesvc/pipeline/compute_time.h"
#include "cachesvc/pipeline/put_records.h"
#include "precis/rope.h"
#include "precis/visible_layer.h"

namespace precis {
namespace {

// The most layers that are read in place at a time. When measured, a third one brought no gain.
constexpr std::size_t kInPlaceMax = 2;

}  // namespace

PutCompression::PutCompression(const PutParts& parts, PutMemory& memory)
    : parts_(parts),
      memory_(memory),
      compressors_(parts.backend),
      in_place_(parts.loop, kInPlaceMax) {}

Task<void> PutCompression::run(std::shared_ptr<OpenPut> put, std::uint32_t layer) {
  ++staged_;
  co_await compress(put, layer);
  --staged_;
}

// A layer is read in place only if no staged layer waits: the client cannot reuse its memory until
// the layer is compressed, which should take no longer than two copies.
Task<bool> PutCompression::run_in_place(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                                        Connection& from) {
  if (!put->is_quick() || parts_.backend.expects_memory()) co_return false;
  if (!put->layers[piece.layer].rows->is_whole(piece)) co_return false;
  co_await in_place_.enter();
  const bool waits = staged_ > 0;
  const bool reads = put->failure.ok() && !waits && read_in_place(*put, piece, from);
  if (reads) co_await compress(put, piece.layer);
  in_place_.leave();
  if (reads && put->failure.ok()) {
    parts_.metrics.in_place_bytes +=
        static_cast<std::int64_t>(put->row.original_bytes / put->model.num_layers);
  }
  co_return reads;
}

bool PutCompression::read_in_place(OpenPut& put, const msg::PushLayer& piece, Connection& from) {
  PutLayer& layer = put.layers[piece.layer];
  auto memory = parts_.memory.try_acquire({{put.records_bytes_max(piece.layer)}});
  if (!memory.ok() || !layer.rows->read_in_place(piece, from)) return false;
  layer.records = std::move(memory->front());
  return true;
}

Task<void> PutCompression::compress(std::shared_ptr<OpenPut> put, std::uint32_t index) {
  memory_.begin_work(*put);
  PutTimes::Work compressing(put->times, PutStage::kCompress);
  PutLayer& layer = put->layers[index];
  layer.stage();
  const Status status =
      co_await run_on(parts_.compute, parts_.loop, [&] { return stages(*put, index); });
  compressing.end();
  if (status.ok()) {
    layer.compress();
    if (put->final_when_encoded()) layer.write();
    parts_.metrics.compressed_in_bytes +=
        static_cast<std::int64_t>(put->row.original_bytes / put->model.num_layers);
  } else {
    put->fail(status);
    layer.drop_rows();
  }
  parts_.memory.retry();  // the rows are free, and the parts of records that were trimmed
  memory_.end_work(*put);
}

Status PutCompression::stages(OpenPut& put, std::uint32_t index) {
  PutLayer& layer = put.layers[index];
  kernels::LayerInput input = layer.rows->input(put.row.begin);
  input.entries = put.entries;
  // For this layer alone: the frequencies of all layers may take megabytes for each open put.
  const auto rope =
      put.recipe.needs_rope() ? rope_frequencies(put.model, index) : std::vector<double>();
  input.rope_frequencies = rope;
  const auto probe =
      put.recipe.needs_probe() ? probe_of_layer(*put.profile, index) : std::vector<float>();
  input.probe = probe;
  if (layer.projection) {
    input.o_proj = Projections::view(*put.projections[index], put.part, layer.projection->bytes());
  }
  const kernels::VisibleLayer seen(put.recipe, input,
                                   visible_tokens(put.model.windows, index, put.num_tokens()));
  PRECIS_ASSIGN(const CompressorPool::Lent compressor, compressors_.take());
  std::optional<kernels::OrderedLayer> ordered;
  {
    const ComputeTime timed(parts_.clock, put.compress_ns);
    PRECIS_ASSIGN(kernels::ScoredLayer scored,
                  kernels::score(*compressor, put.recipe, seen.input()));
    PRECIS_ASSIGN(ordered, std::move(scored).order(put.joiner->slots_wanted(index)));
  }
  return join(put, index, std::move(*ordered));
}

// Layers of a put depend on each other when they join, so they join one at a time. A layer whose
// records no other layer changes is encoded without the lock.
Status PutCompression::join(OpenPut& put, std::uint32_t index, kernels::OrderedLayer ordered) {
  std::unique_lock lock(put.joining);
  std::optional<ComputeTime> timed(std::in_place, parts_.clock, put.compress_ns);
  PutLayer& layer = put.layers[index];
  put.joiner->add(index, ordered.take_turns());
  std::vector<std::uint32_t> counts = put.joiner->counts(index);
  layer.records->shrink(kernels::encoded_bytes(counts, put.entry_form()));
  // Seats that depend on later layers are placed at the commit.
  const auto seats = put.recipe.joins_layers() ? std::vector<std::vector<std::uint32_t>>()
                                               : put.joiner->seats(index);
  if (put.final_when_encoded()) lock.unlock();
  PRECIS_TRY(std::move(ordered).encode(counts, seats, put.row.id, layer.records->bytes()));
  if (!lock.owns_lock()) {
    timed.reset();
    lock.lock();
  }
  layer.counts = std::move(counts);
  if (put.final_when_encoded()) write(put, layer);
  return trim_earlier(put, index);
}

void PutCompression::write(const OpenPut& put, PutLayer& layer) {
  auto written = [&memory = parts_.memory, records = layer.records,
                  writing = PutTimes::Work(put.times, PutStage::kWrite)](const void*) mutable {
    writing.end();
    records.reset();
    memory.retry();  // the layer can be evicted
  };
  layer.stored =
      parts_.catalog.stage({layer.records->bytes(), {layer.records.get(), std::move(written)}});
}

}  // namespace precis
