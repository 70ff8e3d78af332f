#include "precis/rope.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

namespace precis {
namespace {

using Json = nlohmann::json;

// Looked at where it lies: a copy of what a client nested deeply would take a stack as deep. Null
// where there is none.
const Json* member(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  return found != object.end() ? &*found : nullptr;
}

double number(const Json& object, const char* field, double otherwise) {
  const Json* const found = member(object, field);
  return found != nullptr && found->is_number() ? found->get<double>() : otherwise;
}

// Llama 3.1's: slow turns are slowed by `factor`, fast ones stay, those between are blended.
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

// NaN where the parameters are not understood.
double scaled(const Json& rope, double frequency) {
  // "type" is what it was called in older configurations.
  const Json* const type = member(rope, rope.contains("rope_type") ? "rope_type" : "type");
  if (type == nullptr || type->is_null() || *type == "default") return frequency;
  if (*type == "linear") return frequency / number(rope, "factor", 0);
  if (*type == "llama3") return llama3(rope, frequency);
  return std::nan("");
}

// The parameters of `layer`: they may differ by its kind. Null where there are none.
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

}  // namespace

std::vector<std::vector<double>> rope_frequencies(const ModelSpec& model) {
  const Json rope = model.rope_scaling.empty()
                        ? Json::object()
                        : Json::parse(model.rope_scaling, nullptr, /*allow_exceptions=*/false);
  std::vector<std::vector<double>> layers;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    layers.push_back(frequencies_of(model, of_layer(rope, l)));
  }
  return layers;
}

}  // namespace precis
