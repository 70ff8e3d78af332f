// RoPE as a model's spec tells it: how fast each pair of a key's elements turns.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/types.h"

namespace precis {

// Radians per position of each pair, [pairs]: pair c is elements c and c + pairs of a head, as
// Transformers' rotate_half has it; elements past the pairs do not turn. Of rope_scaling are known
// the kinds default, linear and llama3, a partial_rotary_factor, and parameters per kind of layer
// (with layer_types). Empty where it says something else: then keys cannot be turned back.
std::vector<double> rope_frequencies(const ModelSpec& model, std::uint32_t layer);

}  // namespace precis
