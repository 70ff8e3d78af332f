// Parses the device that compresses layers, as users write it.
#pragma once

#include <string_view>

#include "precis/status.h"

namespace precis {

struct DeviceChoice {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;  // kAuto: the first GPU, else the CPU
  int ordinal = 0;          // kCuda: the GPU's number

  // Accepts "auto", "cpu", "cuda" (the first GPU) and "cuda:N". kInvalidArgument names the choices.
  static Result<DeviceChoice> parse(std::string_view text);
};

}  // namespace precis
