// Where a service listens: "host:port", "[v6]:port", or the path of a Unix socket.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis {

struct HostPort {
  std::string host, port;
  std::uint16_t number = 0;  // of the port
};
// kInvalidArgument that says which form is right.
Result<HostPort> split_address(const std::string& address);
// "127.0.0.1:7470", "[::1]:0", "localhost:1"; false for what is no address.
bool is_loopback(const std::string& address);

// "unix:/run/precis.sock" is a path for connect().
inline constexpr const char* kUnixPrefix = "unix:";

// A socket path in the form that the kernel takes, which is shorter than other paths: a longer one
// is named through its directory, which this keeps open.
struct UnixAddress {
  std::string path;
  Descriptor directory;
};
// kInvalidArgument for a path with no directory, or whose last part alone is too long.
Result<UnixAddress> unix_address(const std::string& path);

}  // namespace precis
