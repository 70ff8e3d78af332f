#include <algorithm>

#include "precis/joiner.h"
#include "precis/kernels.h"
#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::size_t kBytes = std::size_t{256} << 20;  // 8K tokens
constexpr std::uint32_t kKeepPpm = 200'000;

// The stages alone, on every core, as the service runs them (put_path.cc) but without its memory.
class Compression {
 public:
  static Result<std::unique_ptr<Compression>> make(const std::string& recipe,
                                                   const Payload& payload) {
    auto made = std::make_unique<Compression>(payload);
    PRECIS_ASSIGN(made->recipe_, parse_recipe(recipe));
    PRECIS_ASSIGN(made->entries_, budget_entries(made->recipe_, made->model_, payload.tokens(),
                                                 Budget::ratio_ppm(kKeepPpm)));
    made->backend_ = kernels::make_cpu_backend();
    PRECIS_ASSIGN(made->compressor_, made->backend_->compressor());
    const std::size_t bytes = kernels::encoded_bytes_max(made->entries_, made->model_.num_kv_heads,
                                                         made->model_.head_dim, made->model_.dtype);
    made->out_.assign(kLayers, std::vector<std::byte>(bytes));
    return made;
  }
  explicit Compression(const Payload& payload) : model_(bench_model(kLayers)), payload_(payload) {}

  Status run() {
    const kernels::SegmentDims dims{kLayers, model_.num_kv_heads, payload_.tokens(), 0};
    PRECIS_ASSIGN(const auto joiner, kernels::Joiner::make(recipe_, dims, entries_, nullptr));
    std::vector<MutableBytes> layers;
    for (std::uint32_t l = 0; l < kLayers; ++l) {
      const LayerPush push = payload_.layer(l);
      kernels::LayerInput input;
      input.layer = l;
      input.num_layers = kLayers;
      input.num_q_heads = model_.num_q_heads;
      input.entries = entries_;
      input.keys = push.keys;
      input.values = push.values;
      kernels::LayerTurns turns;
      PRECIS_TRY(compressor_->check(recipe_, input));
      PRECIS_TRY(compressor_->score());
      PRECIS_TRY(compressor_->select(joiner->slots_wanted(l)));
      PRECIS_TRY(compressor_->allocate(turns));
      joiner->add(l, std::move(turns));
      const auto& counts = joiner->counts(l);
      const std::size_t size = kernels::encoded_bytes(counts, model_.head_dim, model_.dtype);
      layers.push_back(MutableBytes(out_[l]).first(size));
      PRECIS_TRY(compressor_->encode(counts, joiner->seats(l), SegmentId{}, layers.back()));
    }
    return {};
  }

 private:
  const ModelSpec model_;
  const Payload& payload_;
  Recipe recipe_;
  std::uint64_t entries_ = 0;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LayerCompressor> compressor_;
  std::vector<std::vector<std::byte>> out_;  // [num_layers]
};

Row row_of(const std::string& transport, const std::string& recipe) {
  return {"put_compressed",
          {{"transport", transport}, {"bytes", kBytes}, {"recipe", recipe + " at 20%"}},
          "GB/s",
          "",
          {}};
}

Status measure(const Plan& plan, const std::string& transport, const std::string& recipe) {
  plan.began("put with " + recipe + " over " + transport);
  const Payload payload(bench_model(kLayers), kBytes);
  const Folder folder(plan.dir + "/put_compressed");
  PRECIS_ASSIGN(const auto stage,
                Stage::open({folder.path(), transport, 3 * kBytes}, bench_model(kLayers)));
  PRECIS_ASSIGN(TransportCeiling ceiling, TransportCeiling::open(transport, payload.bytes(), 1));
  PRECIS_ASSIGN(const auto compression, Compression::make(recipe, payload));
  PRECIS_ASSIGN(const Payload pushed, payload.copy_for(stage->client()));
  PutOptions options;
  options.recipe = recipe;
  options.keep = Budget::ratio_ppm(kKeepPpm);
  const double gigabytes = static_cast<double>(payload.bytes()) * 1e-9;
  Row row = row_of(transport, recipe);
  row.ceiling_name = "the slower of " + ceiling.name() + ", and the stages alone";
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const double moved, ceiling.rate(1));
    const auto began = std::chrono::steady_clock::now();
    PRECIS_TRY(compression->run());
    const double compressed = gigabytes / seconds_since(began);
    PRECIS_ASSIGN(const PutSeconds seconds,
                  put(stage->client(), stage->model(), pushed, 0, options));
    if (round == plan.rounds) {
      PRECIS_ASSIGN(const LookupMatch match, find_hot(stage->client(), stage->model(), payload, 0));
      PRECIS_TRY(check_kept(stage->client(), match, payload));
    }
    PRECIS_TRY(stage->client().remove_segment(seconds.segment, /*recursive=*/false).status());
    if (round > 0) row.samples.add(gigabytes / seconds.whole, std::min(moved, compressed));
  }
  print(row);
  return {};
}

}  // namespace

Jobs put_compressed(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const char* recipe : {"lagkv", "keydiff"}) {
    jobs.push_back({{row_of(transport, recipe)},
                    [&plan, transport, recipe] { return measure(plan, transport, recipe); }});
  }
  return jobs;
}

}  // namespace precis::bench
