// The only door to Boost.Asio: what the loop and the sockets beside it need, and the one place
// where an Asio error becomes a Status. Included by sources alone, and by no
// header.
#pragma once

#include <utility>  // before Asio: Boost 1.74 forgets it

#if defined(__SANITIZE_THREAD__) && !defined(BOOST_ASIO_DISABLE_FENCED_BLOCK)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK  // ThreadSanitizer knows no fences; Asio's locks suffice
#endif
#include <boost/asio.hpp>

#include <string_view>

#include "cachesvc/base/event_loop.h"
#include "precis/status.h"

namespace precis {

// The loop's io_context, for sockets whose handlers run on the loop.
struct AsioAccess {
  static boost::asio::io_context& context(EventLoop& loop);
};

// "`what`: <the system's words>"; success is OK, and what cannot be reached kUnavailable, for a
// name that nobody has may be known tomorrow. Defined in event_loop.cc.
Status to_status(const boost::system::error_code& error, std::string_view what);

}  // namespace precis
