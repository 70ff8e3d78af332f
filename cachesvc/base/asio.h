// The only header that includes Boost.Asio: it declares everything that the loop and the sockets
// need, and the one function that turns an Asio error into a Status. Only source files include it.
#pragma once

#include <utility>  // before Asio: Boost 1.74 does not include it

#if defined(__SANITIZE_THREAD__) && !defined(BOOST_ASIO_DISABLE_FENCED_BLOCK)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK  // ThreadSanitizer ignores fences; Asio's locks suffice
#endif
#include <boost/asio.hpp>

#include <string_view>

#include "cachesvc/base/asio_loop.h"
#include "precis/status.h"

namespace precis {

// The loop's io_context, for sockets whose handlers run on the loop.
struct AsioAccess {
  static boost::asio::io_context& context(EventLoop& loop);
};

// Returns a Status with the message "`what`: <the system's message>". Success gives OK, an aborted
// operation kCanceled, and a timeout kTimedOut. Every other error gives kUnavailable, also an
// unknown host name, which may exist later. Defined in asio_loop.cc.
Status to_status(const boost::system::error_code& error, std::string_view what);

}  // namespace precis
