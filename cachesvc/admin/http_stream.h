// A connection of the admin port whose response has no end. Private to http_session.cc.
#pragma once

#include <memory>

#include "cachesvc/admin/http_session.h"

namespace precis::admin {

// Sends the response's parts until there are no more or the client leaves. It keeps itself alive.
void serve_stream(HttpSocket socket, std::shared_ptr<HttpShared> shared, HttpResponse response);

}  // namespace precis::admin
