// RoPE frequencies from a model's spec: the rotation speed of each pair of elements of a key.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/types.h"

namespace precis {

// Radians per position of each pair, [num_layers][pairs]. Pair c is elements c and c + pairs of a
// head, as in Transformers' rotate_half; elements after the pairs do not rotate. Supported in
// rope_scaling: the kinds default, linear and llama3; partial_rotary_factor; parameters per kind of
// layer (with layer_types); layers without RoPE (rope_layers: 1 or 0 per layer). A layer's vector
// is empty if the layer has no RoPE or rope_scaling has unsupported content; keys of that layer
// cannot be rotated back.
std::vector<std::vector<double>> rope_frequencies(const ModelSpec& model);
// The frequencies of one layer; empty as above.
std::vector<double> rope_frequencies(const ModelSpec& model, std::uint32_t layer);

// kInvalidArgument if rope_scaling is no JSON object, has an unknown kind, or has a parameter that
// is missing or not above 0. Known kinds without support here (for example yarn) are valid: their
// keys are used without rotating them back.
Status check_rope_scaling(const ModelSpec& model);

}  // namespace precis
