#include "precis/device_choice.h"

#include <charconv>
#include <string>

namespace precis {

Result<DeviceChoice> DeviceChoice::parse(std::string_view text) {
  constexpr std::string_view kCudaColon = "cuda:";
  DeviceChoice choice;
  if (text == "auto") return choice;
  choice.kind = text == "cpu" ? Kind::kCpu : Kind::kCuda;
  if (text == "cpu" || text == "cuda") return choice;
  if (text.starts_with(kCudaColon)) {
    const std::string_view number = text.substr(kCudaColon.size());
    const char* last = number.data() + number.size();
    const auto [end, error] = std::from_chars(number.data(), last, choice.ordinal);
    if (error == std::errc() && end == last && choice.ordinal >= 0) return choice;
  }
  return Status::invalid("device is '" + std::string(text) +
                         "', choose auto, cpu, or cuda:N with the number of a GPU");
}

}  // namespace precis
