// RoPE as a model's spec tells it: how fast each pair of a key's elements turns.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/types.h"

namespace precis {

// Of every layer radians per position of each pair, [num_layers][pairs]: pair c is elements c and
// c + pairs of a head, as Transformers' rotate_half has it; elements past the pairs do not turn. Of
// rope_scaling are known the kinds default, linear and llama3, a partial_rotary_factor, parameters
// per kind of layer (with layer_types), and layers without RoPE (rope_layers: 1 or 0 of each).
// Empty where a layer has none, or where it says something else: then keys cannot be turned back.
std::vector<std::vector<double>> rope_frequencies(const ModelSpec& model);
// The frequencies of one layer.
std::vector<double> rope_frequencies(const ModelSpec& model, std::uint32_t layer);

// kInvalidArgument where rope_scaling is no JSON object, or says a kind that nobody knows or a
// parameter that the kind cannot be worked out from. Kinds that are only passed on (yarn, say) are
// fine: their keys are taken as they are.
Status check_rope_scaling(const ModelSpec& model);

}  // namespace precis
