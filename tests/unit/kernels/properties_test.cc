// Properties of whole compressions: partitions decided while tokens arrive, heads in another order,
// any number of threads.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "precis/recipe.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

HeadsView rows_of(const HeadsView& view, std::uint32_t first, std::uint32_t count) {
  HeadsView part = view;
  part.data = view.row(0, first);
  part.num_tokens = count;
  return part;
}

std::vector<std::uint32_t> sorted(std::vector<std::uint32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// A segment that arrives in chunks (policies/budgets.md, "Incremental partitions"). A partition is
// decided as soon as the next one is complete, and from these two partitions alone. Only the best
// `keep` tokens of the decided partition stay.
class Incremental {
 public:
  Incremental(const CpuStages& cpu, const Recipe& recipe, const LayerInput& whole,
              std::uint32_t sinks, std::uint32_t keep)
      : cpu_(cpu), recipe_(recipe), whole_(whole), base_(sinks), keep_(keep) {
    kept_.resize(whole.num_kv_heads());
    for (auto& head : kept_) {
      for (std::uint32_t t = 0; t < sinks; ++t) head.push_back(t);
    }
  }

  void append(std::uint32_t tokens) {
    arrived_ += tokens;
    for (; arrived_ >= base_ + 2 * recipe_.lag; base_ += recipe_.lag) decide();
  }

  // The kept tokens, with the tail that is never decided.
  std::vector<std::uint32_t> kept(std::uint32_t head) const {
    std::vector<std::uint32_t> tokens = kept_[head];
    for (std::uint32_t t = base_; t < arrived_; ++t) tokens.push_back(t);
    return sorted(tokens);
  }

 private:
  void decide() {
    LayerInput two = whole_;
    two.begin = whole_.begin + base_;
    two.keys = rows_of(whole_.keys, base_, 2 * recipe_.lag);
    two.values = rows_of(whole_.values, base_, 2 * recipe_.lag);
    const std::uint32_t protected_count = recipe_.lag;  // the next partition
    const Compressed c = compress(cpu_, recipe_, two, kept_.size() * (protected_count + keep_));
    for (std::uint32_t h = 0; h < kept_.size(); ++h) {
      const auto head = c.kept(h);
      for (auto t = head.begin() + protected_count; t != head.end(); ++t) {
        kept_[h].push_back(base_ + *t);
      }
    }
  }

  const CpuStages& cpu_;
  const Recipe& recipe_;
  const LayerInput& whole_;
  std::uint32_t base_, keep_, arrived_ = 0;
  std::vector<std::vector<std::uint32_t>> kept_;
};

// Moves block `from` of a vector of equal blocks, one per KV head, to block to[from].
template <typename T>
void permute(std::vector<T>& values, const std::vector<std::uint32_t>& to) {
  const std::vector<T> before = values;
  const std::size_t size = values.size() / to.size();
  for (std::size_t h = 0; h < to.size(); ++h) {
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(h * size), size,
                values.begin() + static_cast<std::ptrdiff_t>(to[h] * size));
  }
}

// Permutes in place, so that views of the layer's memory stay valid.
void permute_heads(OwnedLayer& layer, const std::vector<std::uint32_t>& to) {
  for (auto* bytes : {&layer.keys, &layer.values, &layer.queries, &layer.o_proj}) {
    permute(*bytes, to);
  }
  for (auto* floats : {&layer.lse, &layer.scores, &layer.query_mean, &layer.query_covariance,
                       &layer.gram, &layer.probe}) {
    permute(*floats, to);
  }
}

Profile permuted(Profile profile, const std::vector<std::uint32_t>& to) {
  const std::vector<float> before = profile.table;
  const std::size_t heads = to.size();
  for (std::size_t i = 0; i < before.size(); ++i) {
    profile.table[i / heads * heads + to[i % heads]] = before[i];
  }
  return profile;
}

// Sets scores of which no two are equal, because a tie goes to the lower head.
void set_distinct_scores(OwnedLayer& layer, Rng& rng) {
  std::iota(layer.scores.begin(), layer.scores.end(), 1.0f);
  std::shuffle(layer.scores.begin(), layer.scores.end(), rng);
}

// A shape that pushes all inputs of the recipe.
LayerShape shape_with_all(const Recipe& recipe, std::uint32_t num_tokens) {
  LayerShape shape;
  shape.num_tokens = num_tokens;
  shape.num_layers = 2;
  shape.num_kv_heads = 4;
  shape.group = 3;
  shape.head_dim = 64;
  shape.pushed = recipe.scorer == Scorer::kObservedMean ? num_tokens
                 : recipe.needs_queries()               ? 40
                                                        : 0;
  shape.behind = shape.lse = recipe.needs_lse();
  shape.query_stats = recipe.needs_query_stats();
  shape.o_proj_width = recipe.needs_o_proj() ? 24 : 0;
  shape.probe = recipe.needs_probe();
  shape.external = recipe.scorer == Scorer::kExternal;
  return shape;
}

}  // namespace

TEST_CASE("partitions decided as tokens come keep what one shot at their share keeps",
          "[kernels][properties]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const CpuStages cpu(2);
  for (int round = 0; round < 60; ++round) {
    Recipe recipe = scorer_defaults(
        std::array{Scorer::kLagkv, Scorer::kLocalkv, Scorer::kKnorm}[pick(rng, 0, 2)]);
    recipe.selector = Selector::kPartitionTopk;
    recipe.protect_tail = true;
    recipe.sinks = pick(rng, 0, 6);
    recipe.recent = 0;
    recipe.lag = pick(rng, 1, 20);
    REQUIRE(validate_recipe(recipe).ok());
    LayerShape shape;
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.begin = pick(rng, 0, 1) * pick(rng, 1, 9);
    const std::uint32_t sinks = recipe.sinks - std::min(recipe.sinks, shape.begin);
    const std::uint32_t parts = pick(rng, 0, 6), rest = pick(rng, 0, 2 * recipe.lag);
    shape.num_tokens = std::max(1u, sinks + parts * recipe.lag + rest);
    const std::uint32_t keep = pick(rng, 0, recipe.lag);
    const OwnedLayer layer = make_layer(shape, rng);

    Incremental incremental(cpu, recipe, layer.input, sinks, keep);
    for (std::uint32_t left = shape.num_tokens; left > 0;) {
      const std::uint32_t chunk = pick(rng, 1, std::min(left, 3 * recipe.lag));
      incremental.append(chunk);
      left -= chunk;
    }
    const std::uint32_t beyond = shape.num_tokens - std::min(shape.num_tokens, sinks);
    const std::uint32_t decided = std::max(beyond / recipe.lag, 1u) - 1;
    const std::uint32_t count = shape.num_tokens - decided * (recipe.lag - keep);
    CAPTURE(round, canonical_recipe(recipe), shape.text(), keep, decided, count);
    const Compressed once =
        compress(cpu, recipe, layer.input, std::uint64_t{shape.num_kv_heads} * count);
    for (std::uint32_t h = 0; h < shape.num_kv_heads; ++h) {
      REQUIRE(incremental.kept(h) == sorted(once.kept(h)));
    }
  }
}

TEST_CASE("permuting KV heads permutes what they keep, for every preset", "[kernels][properties]") {
  Rng rng(12);
  const CpuStages cpu(2);
  for (const std::string& name : preset_names()) {
    const Recipe recipe = parse_recipe(name).value();
    if (recipe.scorer == Scorer::kRandom) continue;  // its scores depend on the head's index
    const LayerShape shape = shape_with_all(recipe, 300);
    std::vector<OwnedLayer> layers;
    for (LayerShape s = shape; s.layer < shape.num_layers; ++s.layer) {
      layers.push_back(make_layer(s, rng));
      set_distinct_scores(layers.back(), rng);
    }
    const Profile profile = random_profile(shape, rng);
    const std::vector<std::uint32_t> to{2, 0, 3, 1};
    // The budget is a number of whole rounds, because in a partial round the lower heads are served
    // first. A layer with an unequal share may still end within a round.
    const bool parts =
        recipe.heads == HeadAllocator::kUniform && recipe.layers != LayerAllocator::kUniform;
    const std::uint64_t entries = std::uint64_t{8} * pick(rng, 60, 200);
    CAPTURE(name, entries);
    const auto before = compress_segment(cpu, recipe, layers, entries, &profile);
    for (OwnedLayer& layer : layers) permute_heads(layer, to);
    const Profile moved = permuted(profile, to);
    const auto after = compress_segment(cpu, recipe, layers, entries, &moved);
    for (std::uint32_t l = 0; l < shape.num_layers; ++l) {
      for (std::uint32_t h = 0; h < shape.num_kv_heads; ++h) {
        CAPTURE(l, h);
        auto old = before[l].kept(h), moved_to = after[l].kept(to[h]);
        if (parts && old.size() + 1 == moved_to.size()) moved_to.pop_back();
        if (parts && old.size() == moved_to.size() + 1) old.pop_back();
        CHECK(moved_to == old);
      }
    }
  }
}

TEST_CASE("records are the same bytes on any number of threads, for every preset",
          "[kernels][properties]") {
  Rng rng(13);
  const CpuStages one(1), two(2), seven(7);
  for (const std::string& name : preset_names()) {
    const Recipe recipe = parse_recipe(name).value();
    const LayerShape shape = shape_with_all(recipe, 1100);  // several work items per head
    std::vector<OwnedLayer> layers;
    for (LayerShape s = shape; s.layer < shape.num_layers; ++s.layer) {
      layers.push_back(make_layer(s, rng));
    }
    const Profile profile = random_profile(shape, rng);
    const std::uint64_t entries = pick(rng, 2000, 4000);
    const auto alone = compress_segment(one, recipe, layers, entries, &profile);
    for (const CpuStages* cpu : {&two, &seven}) {
      const auto many = compress_segment(*cpu, recipe, layers, entries, &profile);
      for (std::uint32_t l = 0; l < shape.num_layers; ++l) {
        CAPTURE(name, l);
        CHECK(bytes_text(many[l].records.bytes()) == bytes_text(alone[l].records.bytes()));
      }
    }
  }
}
