// Text that people write: recipes, profiles, settings, words of a command line, and positions.
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "cachesvc/base/byte_size.h"
#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/net/address.h"
#include "cachesvc/server/event_log.h"
#include "cachesvc/server/trace_context.h"
#include "precis/device_choice.h"
#include "precis/keep.h"
#include "precis/profile.h"
#include "precis/recipe.h"
#include "precis/rope.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"

namespace precis::fuzz {
namespace {

// ---- recipes

bool run_recipe(Bytes input) {
  Result<Recipe> recipe = parse_recipe(as_text(input));
  if (!recipe.ok()) return refused(recipe.status());
  PRECIS_CHECK(validate_recipe(*recipe).ok());
  const std::string canonical = canonical_recipe(*recipe);
  const Result<Recipe> again = parse_recipe(canonical);
  recipe->preset.clear();
  PRECIS_CHECK(again.ok());
  PRECIS_CHECK(*again == *recipe);
  PRECIS_CHECK(canonical_recipe(*again) == canonical);
  return true;
}

Inputs recipe_seeds(std::uint64_t) {
  Inputs inputs;
  for (const std::string& name : preset_names()) inputs.push_back(bytes_of(name));
  for (const char* text : {"ada_snapkv(alpha=0.05, window=64)", "criticalkv(tova)",
                           "lukv(keydiff, profile=smollm2 curves)"}) {
    inputs.push_back(bytes_of(text));
  }
  return inputs;
}

Inputs recipe_json_seeds(std::uint64_t) {
  Inputs inputs;
  for (const std::string& name : preset_names()) {
    inputs.push_back(bytes_of(canonical_recipe(*parse_recipe(name))));
  }
  inputs.push_back(bytes_of(R"({"preset": "lagkv", "lag": 64, "sinks": 2})"));
  inputs.push_back(bytes_of(R"({"preset": "headkv", "profile": "caf\u00e9", "version": 1})"));
  return inputs;
}

// ---- profiles

bool run_profile(Bytes input) {
  const Result<Profile> profile = parse_profile(as_text(input));
  if (!profile.ok()) return refused(profile.status());
  const Result<Profile> again = parse_profile(profile_json(*profile));
  PRECIS_CHECK(again.ok());
  PRECIS_CHECK(*again == *profile);
  PRECIS_CHECK(profile_digest(*again) == profile_digest(*profile));
  return true;
}

Inputs profile_seeds(std::uint64_t) {
  Profile profile;
  profile.name = "seed";
  profile.scorer = canonical_recipe(*parse_recipe("keydiff"));
  profile.num_layers = profile.num_kv_heads = 1;
  profile.num_tokens = 100;
  for (std::uint32_t row = 1; row <= Profile::kCurveRows; ++row) {
    profile.table.push_back(static_cast<float>(row) / 100);
  }
  Inputs inputs{bytes_of(profile_json(profile))};
  profile.kind = Profile::Kind::kWeights;
  profile.text_digest = profile.model.hex();
  profile.num_layers = 2;
  profile.table = {0.5f, 1e30f};
  inputs.push_back(bytes_of(profile_json(profile)));
  profile.kind = Profile::Kind::kProbe;
  profile.table.assign(std::size_t{2} * ProbeRows{2}.count(), -0.5f);
  inputs.push_back(bytes_of(profile_json(profile)));
  return inputs;
}

// ---- a model's RoPE

bool run_rope(Bytes input) {
  ModelSpec model;
  model.num_layers = 3;
  model.head_dim = 8;
  model.rope_scaling = as_text(input);
  (void)check_rope_scaling(model);
  const auto layers = rope_frequencies(model);
  PRECIS_CHECK(layers.size() == model.num_layers);
  bool turned = false;
  for (const auto& frequencies : layers) {
    PRECIS_CHECK(frequencies.size() <= model.head_dim / 2);
    for (const double frequency : frequencies) PRECIS_CHECK(std::isfinite(frequency));
    turned = turned || !frequencies.empty();
  }
  return turned;
}

Inputs rope_seeds(std::uint64_t) {
  Inputs inputs;
  for (const char* text :
       {R"({"rope_type":"linear","factor":8.0,"partial_rotary_factor":0.5})",
        R"({"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,)"
        R"("original_max_position_embeddings":8192,"rope_type":"llama3"})",
        R"({"full":{"rope_theta":81.0,"type":"default"},"layer_types":["slide","full"],)"
        R"("rope_layers":[1,0,1],"slide":{"unknown":[[[{}]]]}})"}) {
    inputs.push_back(bytes_of(text));
  }
  return inputs;
}

// ---- settings

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(c));
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '"' && c != '\\';
    out += plain ? std::string(1, c) : code;
  }
  return out + "\"";
}

std::string toml_of(const Config& config) {
  std::string toml =
      "data_dir = " + quoted(config.data_dir) + "\nlisten = " + quoted(config.listen) +
      "\nmemory_bytes = \"" + std::to_string(config.memory_bytes) +
      " B\"\ncompute_threads = " + std::to_string(config.compute_threads) +
      "\ndevice = " + quoted(config.device) + "\nlog_level = " + quoted(config.log_level) +
      "\nlisten_unix = " + quoted(config.listen_unix) + "\ntls_cert = " + quoted(config.tls_cert) +
      "\ntls_key = " + quoted(config.tls_key) +
      "\ntls_client_ca = " + quoted(config.tls_client_ca) +
      "\nmemory_wait_ms = " + std::to_string(config.memory_wait_ms) +
      "\ndefault_recipe = " + quoted(config.default_recipe) +
      "\ndefault_recipe_with_profile = " + quoted(config.default_recipe_with_profile) +
      "\ndefault_keep = " + quoted(config.default_keep.to_string()) + "\n";
  for (const TenantConfig& tenant : config.tenants) {
    toml += "[[tenant]]\nname = " + quoted(tenant.name) + "\ntoken = " + quoted(tenant.token) +
            "\nsalt = " + quoted(tenant.salt) + "\nrole = " + quoted(tenant.role) +
            "\nmax_puts = " + std::to_string(tenant.max_puts) +
            "\nmax_requests_per_s = " + std::to_string(tenant.max_requests_per_s) + "\n";
  }
  return toml;
}

bool run_config(Bytes input) {
  const Result<Config> config = Config::parse(as_text(input), "seed.toml");
  if (!config.ok()) return refused(config.status());
  (void)config->validate();
  PRECIS_CHECK(config->resolved_memory_bytes() > 0 && config->resolved_compute_threads() > 0);
  const std::string toml = toml_of(*config);
  const Result<Config> again = Config::parse(toml, "again.toml");
  PRECIS_CHECK(again.ok());
  PRECIS_CHECK(toml_of(*again) == toml);
  return true;
}

Inputs config_seeds(std::uint64_t) {
  Config config;
  config.data_dir = "/var/lib/caf\u00e9 \"x\"";
  config.memory_bytes = 1 << 30;
  Inputs inputs{bytes_of(toml_of(config))};
  config.tenants = {{"a", "token", ""}, {"b", "", "salt"}};
  inputs.push_back(bytes_of(toml_of(config)));
  inputs.push_back(bytes_of("memory_bytes = \"4GiB\" # all\n'default_keep' = 1\n"));
  return inputs;
}

// ---- words of a command line

bool run_keep(Bytes input) {
  const Result<Budget> keep = parse_keep(std::string(as_text(input)));
  if (!keep.ok()) return refused(keep.status());
  PRECIS_CHECK(parse_keep(keep->to_string()).value() == *keep);
  return true;
}

Inputs keep_seeds(std::uint64_t) {
  Inputs inputs;
  for (const char* text :
       {"0.3", "1", "128 entries", "64 MiB", "1.5KiB", "4096 B", "2 GiB", "loss 0.05", "loss 12"}) {
    inputs.push_back(bytes_of(text));
  }
  return inputs;
}

bool run_size(Bytes input) {
  const auto bytes = parse_bytes(as_text(input));
  if (!bytes.ok()) return refused(bytes.status());
  PRECIS_CHECK(*parse_bytes(std::to_string(*bytes)) == *bytes);
  return true;
}

Inputs size_seeds(std::uint64_t) {
  return {bytes_of("4GiB"), bytes_of("512 MiB"), bytes_of("1000000"), bytes_of("3 KiB")};
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Checks that an accepted word is the name of the parsed value.
bool run_word(Bytes input) {
  const std::string_view text = as_text(input);
  const auto dtype = parse_dtype(text);
  if (dtype.ok()) PRECIS_CHECK(dtype_name(*dtype) == text);
  const auto durability = parse_durability(text);
  if (durability.ok()) PRECIS_CHECK(durability_name(*durability) == text);
  const auto digest = parse_digest(text);
  if (digest.ok()) PRECIS_CHECK(digest->hex() == lower_case(text));
  const auto id = parse_segment_id(text);
  if (id.ok()) PRECIS_CHECK(id->hex() == lower_case(text));
  const auto device = DeviceChoice::parse(text);
  if (device.ok()) PRECIS_CHECK(device->ordinal >= 0);
  const bool address = is_loopback(std::string(text));
  if (address) PRECIS_CHECK(text.find(':') != text.npos);
  return dtype.ok() || durability.ok() || digest.ok() || id.ok() || device.ok() || address ||
         Log::parse_level(text).ok();
}

Inputs word_seeds(std::uint64_t seed) {
  Inputs inputs;
  Digest digest;
  digest.bytes.fill(static_cast<std::uint8_t>(seed));
  SegmentId id;
  id.bytes.fill(0xab);
  for (const std::string& text :
       {std::string("bf16"), std::string("fsync"), std::string("cuda:3"), std::string("warn"),
        std::string("[::1]:7470"), std::string("127.0.0.1:0"), digest.hex(), id.hex()}) {
    inputs.push_back(bytes_of(text));
  }
  return inputs;
}

// ---- positions of a reader of events

// A log that kept the last four of nine events.
struct NineEvents : EventLog {
  NineEvents() : EventLog(0xabcd, {.events_per_tenant = 4}) {
    for (int i = 0; i < 9; ++i) add("tenant", {});
  }
};

// An accepted place is one from which the log can be read, and its text is accepted again.
bool run_position(Bytes input) {
  const NineEvents log;
  const auto place = log.find("tenant", as_text(input));
  if (!place.ok()) return refused(place.status());
  if (place->lost) return true;
  const auto again = log.find("tenant", log.position(place->number, place->listed));
  PRECIS_CHECK(again.ok());
  PRECIS_CHECK(again->number == place->number && again->listed == place->listed && !again->lost);
  PRECIS_CHECK(log.read("tenant", place->number, 9).rows.size() == 9 - place->number);
  return true;
}

Inputs position_seeds(std::uint64_t seed) {
  const NineEvents log;
  Inputs inputs{bytes_of(""), bytes_of("oldest"), bytes_of("newest")};
  SegmentId id;
  id.bytes.fill(static_cast<std::uint8_t>(seed));
  for (const std::string& text : {log.position(2), log.position(7), log.position(9, id)}) {
    inputs.push_back(bytes_of(text));
  }
  return inputs;
}

// ---- a caller's place in its trace

// An accepted text has the digits of what was parsed.
bool run_traceparent(Bytes input) {
  const std::string_view text = as_text(input);
  const auto context = parse_traceparent(text);
  if (!context) return false;
  PRECIS_CHECK((context->trace_high | context->trace_low) != 0 && context->span != 0);
  const std::string ids =
      hex_id(context->trace_high) + hex_id(context->trace_low) + "-" + hex_id(context->span) + "-";
  PRECIS_CHECK(text.substr(3, ids.size()) == ids);
  const std::string again = "00-" + ids + (context->sampled ? "01" : "00");
  PRECIS_CHECK(parse_traceparent(again) == context);
  return true;
}

Inputs traceparent_seeds(std::uint64_t seed) {
  const std::string ids = hex_id(seed) + hex_id(~seed) + "-" + hex_id(seed | 1) + "-";
  return {bytes_of("00-" + ids + "01"), bytes_of("cc-" + ids + "00")};
}

constexpr Target kTargets[] = {
    {"parse_recipe", run_recipe, recipe_seeds},
    {"parse_recipe_json", run_recipe, recipe_json_seeds},
    {"parse_profile", run_profile, profile_seeds},
    {"read_rope", run_rope, rope_seeds},
    {"parse_config", run_config, config_seeds},
    {"parse_keep", run_keep, keep_seeds},
    {"parse_size", run_size, size_seeds},
    {"parse_word", run_word, word_seeds},
    {"find_position", run_position, position_seeds},
    {"parse_traceparent", run_traceparent, traceparent_seeds},
};

}  // namespace

std::span<const Target> text_targets() { return kTargets; }

}  // namespace precis::fuzz
