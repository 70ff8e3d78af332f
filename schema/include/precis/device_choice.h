// Where layers are compressed, as people write it.
#pragma once

#include <string_view>

#include "precis/status.h"

namespace precis {

struct DeviceChoice {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;  // kAuto: the first GPU, else the CPU
  int ordinal = 0;          // of kCuda

  // "auto", "cpu", "cuda" (the first GPU) or "cuda:N". kInvalidArgument naming the choices.
  static Result<DeviceChoice> parse(std::string_view text);
};

}  // namespace precis
