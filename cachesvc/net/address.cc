#include "cachesvc/net/address.h"

#include <fcntl.h>

#include <charconv>
#include <cstring>

#include "cachesvc/base/asio.h"

namespace precis {

Result<HostPort> split_address(const std::string& address) {
  const auto colon = address.rfind(':');
  const bool no_port = colon == std::string::npos || address.ends_with(':') ||
                       address.ends_with(']');  // these are colons of the host
  if (no_port || colon == 0) {
    return Status::invalid("address '" + address +
                           "' is not of the form host:port, such as 127.0.0.1:7470 or [::1]:7470");
  }
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  const char* const end = parts.port.data() + parts.port.size();
  const auto [stop, error] = std::from_chars(parts.port.data(), end, parts.number);
  if (error != std::errc() || stop != end) {
    return Status::invalid("address '" + address + "': port '" + parts.port +
                           "' must be a number in [0, 65535]");
  }
  if (parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  } else if (parts.host.find('/') != std::string::npos) {
    return Status::invalid("address '" + address +
                           "' must be host:port alone, without a scheme or a path");
  } else if (parts.host.find(':') != std::string::npos) {
    return Status::invalid("address '" + address +
                           "': write an IPv6 host in brackets, as in [::1]:7470");
  }
  return parts;
}

bool is_loopback(const std::string& address) {
  const auto parts = split_address(address);
  if (!parts.ok()) return false;
  boost::system::error_code not_a_number;
  const auto host = boost::asio::ip::make_address(parts->host, not_a_number);
  return not_a_number ? parts->host == "localhost" : host.is_loopback();
}

Result<UnixAddress> unix_address(const std::string& path) {
  UnixAddress address{path, {}};
  if (path.size() < sizeof(sockaddr_un::sun_path)) return address;
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) {
    return Status::invalid("socket path '" + path + "' is too long");
  }
  const std::string directory = path.substr(0, slash + 1);
  address.directory = Descriptor(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!address.directory) {
    return Status::invalid("socket path '" + path + "': " + std::strerror(errno));
  }
  address.path = "/proc/self/fd/" + std::to_string(address.directory.get()) + path.substr(slash);
  if (address.path.size() < sizeof(sockaddr_un::sun_path)) return address;
  return Status::invalid("socket path '" + path + "': its last part is too long");
}

}  // namespace precis
