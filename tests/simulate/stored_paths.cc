#include "tests/simulate/stored_paths.h"

#include <array>
#include <cstdlib>
#include <cstring>

#include "precis/recipe.h"
#include "tests/integration/coded_kv.h"

namespace precis::simulate {
namespace {

constexpr std::uint32_t kTokensMin = 20, kTokensMax = 90;
constexpr std::array kRecipes = {"knorm(min_entries=4)", "global_kvdiff(min_entries=4)",
                                 "knorm(min_entries=4, encoding=int8)",
                                 "global_kvdiff(min_entries=4, encoding=int4)",
                                 "knorm(min_entries=4, encoding=k6v4)"};

constexpr std::size_t kAlign = 4096, kSkew = 16;

// Moves keys and values to memory of their own, on cache lines or beside them.
void place(Segment& segment, bool aligned) {
  std::size_t size = kAlign;
  for (const testing::LayerKv& layer : segment.kv.layers) {
    size += 2 * (layer.keys.bytes.size() + kAlign);
  }
  segment.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, size / kAlign * kAlign)),
                       [](std::byte* memory) { std::free(memory); });
  std::byte* at = segment.memory.get() + (aligned ? 0 : kSkew);
  for (testing::LayerKv& layer : segment.kv.layers) {
    for (testing::Tensor* tensor : {&layer.keys, &layer.values}) {
      std::memcpy(at, tensor->bytes.data(), tensor->bytes.size());
      tensor->view.data = at;
      at += (tensor->bytes.size() + kAlign - 1) / kAlign * kAlign;
    }
  }
}

testing::Kv read_kv_of(const Segment& segment) {
  return testing::as_read(segment.kv, parse_recipe(segment.recipe).value().encoding);
}

}  // namespace

Path make_path(Simulation& machine, std::mt19937& kv_random, const ModelSpec& model) {
  Path path;
  const bool alike = machine.chance(0.7);  // only segments that are alike are consolidated
  for (std::uint32_t s = 0; s < kSegments; ++s) {
    const auto begin = static_cast<std::uint32_t>(path.tokens.size());
    const auto count =
        kTokensMin + static_cast<std::uint32_t>(machine.random(kTokensMax - kTokensMin));
    const auto tokens = testing::random_tokens(kv_random, count);
    path.tokens.insert(path.tokens.end(), tokens.begin(), tokens.end());
    Segment& segment = path.segments.emplace_back();
    segment.end = begin + count;
    segment.kv = testing::random_kv(kv_random, model, begin, count);
    place(segment, machine.chance(0.5));
    segment.recipe = kRecipes[machine.random(kRecipes.size())];
    segment.keep = Budget::ratio_ppm(machine.chance(0.5) ? 1'000'000 : 300'000);
    if (alike) {
      segment.recipe = path.segments.front().recipe;
      segment.keep = path.segments.front().keep;
    }
    segment.read_kv = read_kv_of(segment);
  }
  return path;
}

Segment make_branch(Simulation& machine, std::mt19937& kv_random, const ModelSpec& model,
                    const Path& path, const Segment& like, std::uint32_t begin,
                    std::vector<TokenId>& tokens) {
  tokens.assign(path.tokens.begin(), path.tokens.begin() + begin);
  const auto count = 1 + static_cast<std::uint32_t>(machine.random(kTokensMin));
  const auto more = testing::random_tokens(kv_random, count);
  tokens.insert(tokens.end(), more.begin(), more.end());
  Segment segment;
  segment.end = begin + count;
  segment.kv = testing::random_kv(kv_random, model, begin, count);
  place(segment, machine.chance(0.5));
  segment.recipe = like.recipe;
  segment.keep = like.keep;
  segment.read_kv = read_kv_of(segment);
  return segment;
}

std::size_t first_with(const Path& path, std::size_t n) {
  const auto is_alike = [&](const Segment& segment) {
    return segment.recipe == path.segments[n].recipe && segment.keep == path.segments[n].keep;
  };
  while (n > 1 && is_alike(path.segments[n - 1])) --n;
  return n;
}

bool may_be_consolidated(const Path& path, std::size_t n) {
  const bool with_next = n + 1 < kSegments && path.segments[n + 1].state != State::kAbsent &&
                         first_with(path, n + 1) <= n;
  return first_with(path, n) < n || with_next;
}

std::size_t stored_of(const Path& path) {
  std::size_t n = 0;
  while (n < kSegments && path.segments[n].state == State::kStored) ++n;
  return n;
}
std::size_t possible(const Path& path) {
  std::size_t n = 0;
  while (n < kSegments && path.segments[n].state != State::kAbsent) ++n;
  return n;
}

std::vector<TokenId> tokens_of(const Path& path, std::size_t segments) {
  const std::uint32_t end = path.segments[segments - 1].end;
  return {path.tokens.begin(), path.tokens.begin() + end};
}

PutOptions options_of(const Path& path, std::size_t n) {
  PutOptions put;
  put.recipe = path.segments[n].recipe;
  put.keep = path.segments[n].keep;
  put.parent = n == 0 ? SegmentId{} : *path.segments[n - 1].id;
  return put;
}

}  // namespace precis::simulate
