// Listen addresses: "host:port", "[v6]:port", or the path of a Unix socket.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis {

struct HostPort {
  std::string host, port;
  std::uint16_t number = 0;  // the port as a number
};
// kInvalidArgument that states the right form.
Result<HostPort> split_address(const std::string& address);
// True for "127.0.0.1:7470", "[::1]:0", "localhost:1". False for a string that is no address.
bool is_loopback(const std::string& address);

// The prefix of a Unix socket's path in connect(): "unix:/run/precis.sock".
inline constexpr const char* kUnixPrefix = "unix:";

// A socket path in a form that the kernel accepts: the kernel limits its length. A longer path goes
// through its directory, which this object keeps open.
struct UnixAddress {
  std::string path;
  Descriptor directory;
};
// kInvalidArgument for a path that is too long and has no directory, a directory that cannot be
// opened, or a last part that alone is too long.
Result<UnixAddress> unix_address(const std::string& path);

}  // namespace precis
