#include "precis/rope.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <string_view>

#include "recipe_fields.h"

namespace precis {
namespace {

using Json = nlohmann::json;

// A member of `object`; null if missing. Returns a pointer, because copying JSON recurses: deeply
// nested JSON of a client could overflow the stack.
const Json* member(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  return found != object.end() ? &*found : nullptr;
}

double number(const Json& object, const char* field, double otherwise) {
  const Json* const found = member(object, field);
  return found != nullptr && found->is_number() ? found->get<double>() : otherwise;
}

// Llama 3.1's scaling: low frequencies are divided by `factor`, high frequencies stay, and those in
// between are blended.
double llama3(const Json& rope, double frequency) {
  const double factor = number(rope, "factor", 0), low = number(rope, "low_freq_factor", 0);
  const double high = number(rope, "high_freq_factor", 0);
  const double turns =
      number(rope, "original_max_position_embeddings", 0) * frequency / (2 * std::numbers::pi);
  if (!(factor > 0 && low > 0 && high > low && turns > 0)) return std::nan("");
  if (turns < low) return frequency / factor;
  if (turns > high) return frequency;
  const double blend = (turns - low) / (high - low);
  return (1 - blend) * frequency / factor + blend * frequency;
}

// NaN if the parameters are not supported.
double scaled(const Json& rope, double frequency) {
  // Older configurations call it "type".
  const Json* const type = member(rope, rope.contains("rope_type") ? "rope_type" : "type");
  if (type == nullptr || type->is_null() || *type == "default") return frequency;
  if (*type == "linear") return frequency / number(rope, "factor", 0);
  if (*type == "llama3") return llama3(rope, frequency);
  return std::nan("");
}

// The parameters of `layer`, which may differ by the kind of layer; null if the layer has none.
const Json* of_layer(const Json& rope, std::uint32_t layer) {
  if (!rope.is_object()) return nullptr;
  if (const Json* const turned = member(rope, "rope_layers")) {
    if (!turned->is_array() || layer >= turned->size() || (*turned)[layer] != 1) return nullptr;
  }
  const Json* const kinds = member(rope, "layer_types");
  if (kinds == nullptr) return &rope;
  if (!kinds->is_array() || layer >= kinds->size() || !(*kinds)[layer].is_string()) return nullptr;
  return member(rope, (*kinds)[layer].get_ref<const std::string&>());
}

std::vector<double> frequencies_of(const ModelSpec& model, const Json* rope) {
  if (rope == nullptr || !rope->is_object()) return {};
  const double theta = number(*rope, "rope_theta", model.rope_theta);
  const double share = number(*rope, "partial_rotary_factor", 1);
  if (!(theta > 0 && share > 0 && share <= 1)) return {};
  const auto rotated = static_cast<std::uint32_t>(model.head_dim * share);
  std::vector<double> frequencies;
  for (std::uint32_t c = 0; c < rotated / 2; ++c) {
    const double frequency = scaled(*rope, std::pow(theta, -2.0 * c / rotated));
    if (!std::isfinite(frequency)) return {};
    frequencies.push_back(frequency);
  }
  return frequencies;
}

Json parse_scaling(const ModelSpec& model) {
  if (model.rope_scaling.empty()) return Json::object();
  return Json::parse(model.rope_scaling, nullptr, /*allow_exceptions=*/false);
}

// The kinds that Transformers knows. Kinds that rope_frequencies() does not support need no
// parameters.
constexpr std::string_view kKinds[] = {"default", "dynamic",      "linear", "llama3", "longrope",
                                       "mrope",   "proportional", "su",     "yarn"};

Status invalid(const std::string& why) { return Status::invalid("model: rope_scaling: " + why); }

Status check_positive(const Json& rope, const std::string& kind, const char* field, bool needed) {
  const Json* const found = member(rope, field);
  if (found == nullptr || found->is_null()) {
    return needed ? invalid(std::string(field) + " is missing, rope_type '" + kind + "' needs it")
                  : Status();
  }
  if (found->is_number() && found->get<double>() > 0) return {};
  return invalid(std::string(field) + " is " +
                 (found->is_number() ? found->dump() : found->type_name()) +
                 ", must be a number above 0");
}

// Checks one set of parameters.
Status check_kind(const Json& rope) {
  const char* const field = rope.contains("rope_type") ? "rope_type" : "type";
  const Json* const type = member(rope, field);
  std::string kind = "default";
  if (type != nullptr && !type->is_null()) {
    if (!type->is_string()) {
      return invalid(std::string(field) + " is " + type->type_name() + ", must be a string");
    }
    kind = type->get<std::string>();
  }
  if (std::ranges::find(kKinds, kind) == std::end(kKinds)) {
    std::string known;
    for (const std::string_view one : kKinds) {
      known += (known.empty() ? "" : ", ") + std::string(one);
    }
    return invalid(std::string(field) + " " + in_quotes(kind) + " is unknown, choose one of " +
                   known);
  }
  const bool llama = kind == "llama3";
  PRECIS_TRY(check_positive(rope, kind, "factor", llama || kind == "linear"));
  if (!llama) return {};
  for (const char* one :
       {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    PRECIS_TRY(check_positive(rope, kind, one, /*needed=*/true));
  }
  return {};
}

}  // namespace

Status check_rope_scaling(const ModelSpec& model) {
  if (model.rope_scaling.empty()) return {};
  const Json rope = Json::parse(model.rope_scaling, nullptr, /*allow_exceptions=*/false);
  if (!rope.is_object()) return invalid(in_quotes(model.rope_scaling) + " is not a JSON object");
  const Json* const kinds = member(rope, "layer_types");
  if (kinds == nullptr || !kinds->is_array()) return check_kind(rope);
  for (const Json& name : *kinds) {
    const Json* const one =
        name.is_string() ? member(rope, name.get_ref<const std::string&>()) : nullptr;
    if (one != nullptr && one->is_object()) PRECIS_TRY(check_kind(*one));
  }
  return {};
}

std::vector<double> rope_frequencies(const ModelSpec& model, std::uint32_t layer) {
  const Json rope = parse_scaling(model);
  return frequencies_of(model, of_layer(rope, layer));
}

std::vector<std::vector<double>> rope_frequencies(const ModelSpec& model) {
  const Json rope = parse_scaling(model);
  std::vector<std::vector<double>> layers;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    layers.push_back(frequencies_of(model, of_layer(rope, l)));
  }
  return layers;
}

}  // namespace precis
