#include "tests/bench/service/stages_alone.h"

#include <atomic>
#include <utility>

#include "tests/bench/all_at_once.h"

namespace precis::bench {

Result<std::unique_ptr<StagesAlone>> StagesAlone::make(const ModelSpec& model,
                                                       const Payload& payload,
                                                       const PutOptions& options) {
  auto made = std::make_unique<StagesAlone>(model, payload);
  PRECIS_ASSIGN(made->recipe_, parse_recipe(options.recipe));
  PRECIS_CHECK(!made->recipe_.joins_layers() && !made->recipe_.is_cut());
  PRECIS_ASSIGN(made->entries_,
                budget_entries(made->recipe_, model, payload.tokens(), *options.keep));
  made->backend_ = kernels::make_cpu_backend();
  for (unsigned i = 0; i < made->backend_->compressors(); ++i) {
    PRECIS_ASSIGN(auto compressor, made->backend_->compressor());
    made->compressors_.push_back(std::move(compressor));
  }
  const std::size_t bytes =
      kernels::encoded_bytes_max(made->entries_, model.num_kv_heads, {model.head_dim, model.dtype});
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    made->out_.push_back(std::make_unique<ColdPool>(bytes));
  }
  return made;
}

Result<double> StagesAlone::rate() {
  const kernels::SegmentDims dims{model_.num_layers, model_.num_kv_heads, payload_.tokens(), 0};
  PRECIS_ASSIGN(const auto joiner, kernels::Joiner::make(recipe_, dims, entries_, nullptr));
  std::atomic<std::uint32_t> next{0};
  std::vector<Status> ended(compressors_.size());
  const double seconds = all_at_once(compressors_.size(), [&](std::size_t i) {
    for (std::uint32_t l; ended[i].ok() && (l = next++) < model_.num_layers;) {
      ended[i] = run(l, *compressors_[i], *joiner);
    }
  });
  for (const Status& status : ended) PRECIS_TRY(status);
  return static_cast<double>(payload_.bytes()) * 1e-9 / seconds;
}

Status StagesAlone::run(std::uint32_t layer, kernels::LayerCompressor& compressor,
                        kernels::Joiner& joiner) {
  const LayerPush push = payload_.layer(layer);
  kernels::LayerInput input;
  input.layer = layer;
  input.num_layers = model_.num_layers;
  input.num_q_heads = model_.num_q_heads;
  input.entries = entries_;
  input.keys = push.keys;
  input.values = push.values;
  PRECIS_ASSIGN(kernels::ScoredLayer scored, kernels::score(compressor, recipe_, input));
  PRECIS_ASSIGN(kernels::OrderedLayer ordered, std::move(scored).order(joiner.slots_wanted(layer)));
  std::unique_lock lock(joining_);
  joiner.add(layer, ordered.take_turns());
  const std::vector<std::uint32_t> counts = joiner.counts(layer);
  const auto seats = joiner.seats(layer);
  lock.unlock();
  const std::size_t size = kernels::encoded_bytes(counts, {model_.head_dim, model_.dtype});
  return std::move(ordered).encode(counts, seats, SegmentId{}, out_[layer]->all().first(size));
}

}  // namespace precis::bench
