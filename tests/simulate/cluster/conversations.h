// The prompts of a real service as a tree of blocks, for simulations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis::simulate {

// A request's prompt: ids of its blocks. Equal ids mean that all blocks up to there are equal.
using Prompt = std::vector<std::uint32_t>;

struct Conversations {
  std::vector<Prompt> prompts;  // in the order of arrival
  std::uint32_t blocks = 0;     // how many differ; ids are below
};

// Reads lines "EARLIER COMMON BLOCKS" (conversations.txt explains them). kNotFound if the file
// cannot be read; kInvalidArgument names the line that is wrong.
Result<Conversations> read_conversations(const std::string& path);

}  // namespace precis::simulate
