// The stages' allocations besides their results must be small compared with the layer. A separate
// binary, because it counts every allocation of the process.
#include <malloc.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "precis/joiner.h"
#include "tests/unit/kernels/layer_fixture.h"

namespace {

std::atomic<std::size_t> in_use{0}, peak{0};

void* counted(void* p) {
  if (p == nullptr) std::abort();
  const std::size_t now = in_use.fetch_add(malloc_usable_size(p)) + malloc_usable_size(p);
  std::size_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
  return p;
}
void release(void* p) {
  if (p != nullptr) in_use.fetch_sub(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t align) {
  const auto a = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

constexpr std::uint32_t kTokens = 32'768;  // of a Llama 3.1 8B layer

// The most that fn allocates beyond the memory in use before it.
template <typename Fn>
std::size_t most_allocated(const Fn& fn) {
  const std::size_t before = in_use;
  peak = before;
  fn();
  return peak - before;
}

OwnedLayer long_layer() {
  LayerShape shape;
  shape.num_kv_heads = 8;
  shape.group = 4;
  shape.num_tokens = kTokens;
  shape.head_dim = 128;
  shape.pushed = 32;
  shape.query_stats = true;
  shape.rope_pairs = 64;
  shape.probe = true;
  shape.dtype = Dtype::kBf16;
  Rng rng(1);
  OwnedLayer layer = make_layer(shape, rng);
  layer.gram.assign(std::size_t{32} * 128 * 128, 0.01f);
  layer.input.o_proj.gram = layer.gram;
  return layer;
}

}  // namespace

TEST_CASE("stages need at most a twentieth of K besides their results", "[kernels][workspace]") {
  const OwnedLayer layer = long_layer();
  const LayerInput& input = layer.input;
  const CpuStages cpu(2);
  const std::uint64_t entries = std::uint64_t{8} * kTokens / 5;
  const std::size_t allowed = input.keys.size_bytes() / 20;
  const std::size_t tokens = std::size_t{8} * kTokens;
  for (const char* name : {"knorm", "keydiff", "kvdiff", "kvprobe", "lagkv", "snapkv", "ada_snapkv",
                           "pyramidkv", "tova", "h2o_window", "cake", "lava", "vatp",
                           "expected_attention", "criticalkv_ada(value_norm=l2_gram)"}) {
    const Recipe recipe = parse_recipe(name).value();
    LayerScores scores;
    RetentionOrders orders;
    LayerTurns turns;
    const std::size_t scoring =
        most_allocated([&] { REQUIRE(cpu.score(recipe, input, scores) == Status{}); });
    const std::size_t results = (scores.scores.size() + scores.second.size()) * sizeof(float);
    CAPTURE(name, scoring, results, allowed);
    REQUIRE(scores.scores.size() == tokens);
    CHECK(scoring <= results + allowed);
    const std::size_t ordering = most_allocated([&] {
      REQUIRE(cpu.select(recipe, input, scores, entries, orders) == Status{});
      REQUIRE(cpu.allocate(recipe, input, scores, orders, entries, turns) == Status{});
    });
    std::size_t listed = turns.heads.capacity() * sizeof(std::uint16_t);
    for (const auto& order : orders.order) listed += order.capacity() * sizeof(std::uint32_t);
    CAPTURE(ordering, listed);
    CHECK(ordering <= listed + allowed);
  }
}
