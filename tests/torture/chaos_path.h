// The paths that the clients of ./dev torture --clients put and read, the same in every process.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "precis/client.h"
#include "tests/integration/random_kv.h"

namespace precis::torture {

inline constexpr std::uint32_t kChaosTokens = 1024;  // 2 MiB of K and V over all layers

inline ModelSpec chaos_model() { return testing::tiny_model(); }

inline std::vector<TokenId> chaos_tokens(std::uint32_t seed) {
  std::mt19937 random(seed);
  return testing::random_tokens(random, kChaosTokens);
}

// A path and its KV, determined by a seed.
struct ChaosPath {
  explicit ChaosPath(std::uint32_t seed) : tokens(chaos_tokens(seed)) {
    std::mt19937 random(seed);
    kv = testing::random_kv(random, chaos_model(), 0, kChaosTokens);
  }
  std::vector<TokenId> tokens;
  testing::Kv kv;
};

// `kv`: the path's KV, in any memory.
inline Result<msg::SegmentInfo> put_path(Client& client, const Model& model, const ChaosPath& path,
                                         const testing::Kv& kv) {
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio_ppm(900'000);
  return testing::put_all(client, model, path.tokens, kv, options);
}

// OK also if nothing of the path is stored.
inline Status remove_path(Client& client, const Model& model, const std::vector<TokenId>& tokens) {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, tokens));
  if (!match) return {};
  return client.remove_segment(match.links[0].segment.id, /*recursive=*/true).status();
}

}  // namespace precis::torture
