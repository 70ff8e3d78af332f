// Counts in natural language, for the log and for messages: "1 segment", "2 segments".
#pragma once

#include <cstdint>
#include <string>

namespace precis {

inline std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}
inline std::string counted(std::uint64_t count, const std::string& one) {
  return counted(count, one, one + "s");
}

}  // namespace precis
