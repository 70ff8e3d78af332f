// The only header that includes Boost.Beast. Only source files of this folder include it.
#pragma once

#include "cachesvc/base/asio.h"

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <memory>
#include <string>

namespace precis::admin {

// An accepted connection.
struct HttpSocket {
  std::weak_ptr<boost::asio::io_context> io;  // owns what the connection's handlers own
  boost::asio::ip::tcp::socket socket;
  std::string from;  // the client's IP address
};

}  // namespace precis::admin
