#include "cachesvc/base/utc_time.h"

#include <array>
#include <ctime>

namespace precis {

std::string utc_text(std::uint64_t unix_ms, const char* format) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace precis
