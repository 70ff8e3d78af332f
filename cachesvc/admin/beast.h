// An accepted connection of the admin port. Only source files of this folder include this.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/net/http_link.h"

namespace precis::admin {

struct HttpSocket {
  std::weak_ptr<boost::asio::io_context> io;  // owns what the connection's handlers own
  std::unique_ptr<HttpLink> link;
  std::string from;  // the client's IP address
};

}  // namespace precis::admin
