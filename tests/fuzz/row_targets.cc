#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "precis/catalog_row.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/mended_row.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {

std::vector<std::byte> mended_row(Bytes row) {
  constexpr std::size_t kHashOffset = 8, kHeaderBytes = 24;
  std::vector<std::byte> out(row.begin(), row.end());
  if (out.size() < kHeaderBytes) return out;
  std::vector<std::byte> hashed(out.begin(), out.begin() + kHashOffset);
  hashed.insert(hashed.end(), out.begin() + kHeaderBytes, out.end());
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits(hashed.data(), hashed.size()));
  std::memcpy(out.data() + kHashOffset, &hash, sizeof hash);
  return out;
}

namespace {

using testing::RandomMessages;

// Tries each input unchanged and with a correct checksum.
template <auto Decode>
bool run_row(Bytes input) {
  const auto run = [](Bytes bytes) {
    const auto row = Decode(bytes);
    if (!check_stable(row, Decode)) {
      const StatusCode code = row.status().code();
      PRECIS_CHECK(code == StatusCode::kCorruption || code == StatusCode::kVersionMismatch);
      return false;
    }
    PRECIS_CHECK(Decode(with_a_flipped_bit(bytes)).status().code() == StatusCode::kCorruption);
    return true;
  };
  run(mended_row(input));
  return run(input);
}

template <auto Member>
Inputs row_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  return {encode((random.*Member)())};
}

constexpr Target kTargets[] = {
    {"decode_segment_row", run_row<decode_segment_row>, row_seeds<&RandomMessages::segment_row>},
    {"decode_stored_session", run_row<decode_stored_session>,
     row_seeds<&RandomMessages::stored_session>},
    {"decode_stored_model", run_row<decode_stored_model>, row_seeds<&RandomMessages::stored_model>},
    {"decode_stored_budget", run_row<decode_stored_budget>,
     row_seeds<&RandomMessages::stored_budget>},
    {"decode_stored_projection", run_row<decode_stored_projection>,
     row_seeds<&RandomMessages::stored_projection>},
    {"decode_stored_profile", run_row<decode_stored_profile>,
     row_seeds<&RandomMessages::stored_profile>},
    {"decode_stored_revision", run_row<decode_stored_revision>,
     row_seeds<&RandomMessages::stored_revision>},
    {"decode_stored_tenant", run_row<decode_stored_tenant>,
     row_seeds<&RandomMessages::stored_tenant>},
};

}  // namespace

std::span<const Target> row_targets() { return kTargets; }

}  // namespace precis::fuzz
