// The name and version of this build.
#pragma once

#include <string>

namespace precis {

inline constexpr const char* kVersion = PRECIS_VERSION;  // CMake's project version
inline std::string server_name() { return std::string("precisd ") + kVersion; }

}  // namespace precis
