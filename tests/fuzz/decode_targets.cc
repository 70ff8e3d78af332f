#include "tests/fuzz/decode_targets.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "precis/catalog_row.h"
#include "precis/messages.h"
#include "precis/recipe.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

using testing::RandomMessages;
using Inputs = std::vector<std::vector<std::byte>>;

// Whatever is accepted must mean one thing: written again, it gives bytes that are accepted and
// give the same bytes. Bytes are compared, not values, since a NaN is not equal to itself.
template <typename T>
void check_stable(const Result<T>& first, Result<T> (*decode)(Bytes)) {
  if (!first.ok()) {
    PRECIS_CHECK(!first.status().message().empty());
    return;
  }
  const std::vector<std::byte> bytes = encode(*first);
  const Result<T> second = decode(bytes);
  PRECIS_CHECK(second.ok());
  PRECIS_CHECK(encode(*second) == bytes);
}

template <typename T>
void run_message(Result<T> (*decode)(Bytes), Bytes input) {
  check_stable(decode(input), decode);
}

// A mutated row fails its checksum at once, so each input is tried as it is and with the checksum
// mended (schema/catalog.capnp draws the frame).
std::vector<std::byte> mended(Bytes row) {
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

template <typename T>
void run_row(Result<T> (*decode)(Bytes), Bytes input) {
  const std::vector<std::byte> sealed = mended(input);
  for (const Bytes bytes : {input, Bytes(sealed)}) {
    const Result<T> row = decode(bytes);
    check_stable(row, decode);
    if (row.ok()) continue;
    const StatusCode code = row.status().code();
    PRECIS_CHECK(code == StatusCode::kCorruption || code == StatusCode::kVersionMismatch);
  }
}

void run_recipe(Bytes input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  Result<Recipe> recipe = parse_recipe(text);
  if (!recipe.ok()) return;
  PRECIS_CHECK(validate_recipe(*recipe).ok());
  const std::string canonical = canonical_recipe(*recipe);
  const Result<Recipe> again = parse_recipe(canonical);
  recipe->preset.clear();
  PRECIS_CHECK(again.ok());
  PRECIS_CHECK(*again == *recipe);
  PRECIS_CHECK(canonical_recipe(*again) == canonical);
}

Inputs request_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  Inputs inputs;
  for (std::size_t kind = 0; kind < testing::kRequestKinds; ++kind) {
    inputs.push_back(encode(random.request(kind)));
  }
  return inputs;
}

Inputs server_message_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  Inputs inputs{encode(random.layer_served())};
  for (std::size_t kind = 0; kind < testing::kReplyKinds; ++kind) {
    inputs.push_back(encode(random.reply(kind)));
  }
  return inputs;
}

Inputs recipe_seeds(std::uint64_t) {
  std::vector<std::string> texts = preset_names();
  for (const std::string& name : preset_names())
    texts.push_back(canonical_recipe(*parse_recipe(name)));
  texts.push_back("ada_snapkv(alpha=0.05, window=64)");
  texts.push_back(R"({"preset": "lagkv", "lag": 64, "sinks": 2})");
  Inputs inputs;
  for (const std::string& text : texts) {
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

constexpr Target kTargets[] = {
    {"decode_hello", [](Bytes b) { run_message(decode_hello, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).hello())}; }},
    {"decode_hello_reply", [](Bytes b) { run_message(decode_hello_reply, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).hello_reply())}; }},
    {"decode_request", [](Bytes b) { run_message(decode_request, b); }, request_seeds},
    {"decode_server_message", [](Bytes b) { run_message(decode_server_message, b); },
     server_message_seeds},
    {"decode_segment_row", [](Bytes b) { run_row(decode_segment_row, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).segment_row())}; }},
    {"decode_stored_session", [](Bytes b) { run_row(decode_stored_session, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).stored_session())}; }},
    {"decode_stored_model", [](Bytes b) { run_row(decode_stored_model, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).stored_model())}; }},
    {"decode_stored_budget", [](Bytes b) { run_row(decode_stored_budget, b); },
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).stored_budget())}; }},
    {"parse_recipe", run_recipe, recipe_seeds},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(kTargets, name, &Target::name);
  return found == std::end(kTargets) ? nullptr : found;
}

}  // namespace precis::fuzz
