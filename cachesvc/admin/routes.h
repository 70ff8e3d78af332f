// The table of the API's routes. Each is one request of the protocol (schema/control.capnp); what a
// route accepts, answers and documents follows from the request's message.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/admin/http_message.h"
#include "precis/messages.h"
#include "schema/json/message_json.h"

namespace precis::admin {

struct Route {
  Method method;
  std::string_view pattern;  // "/api/v1/prefixes/{segment}": {..} is a parameter of the request
  std::string_view summary;
  msg::RequestBody request;                  // with the values of parameters that are not given
  std::vector<std::string_view> fixed = {};  // parameters that the route sets, not its caller
};
std::span<const Route> routes();

// The route of a request. kNotFound if no route has its path, kUnsupported, naming the methods, if
// only routes of other methods have it.
Result<const Route*> find_route(Method method, const Target& target);

// The tenant on whose behalf the request is made, as its query says: ?tenant=.
std::string tenant_of(const Target& target);
// The request that was asked for: parameters come from the path, the query and a JSON object in the
// body. kInvalidArgument names a parameter that is wrong, unknown or given twice.
Result<msg::RequestBody> read_request(const Route& route, const HttpRequest& request);
// The answer in the keys of precisctl --json. Lists also have "next": null, or the value of `after`
// with which the next page begins.
message_json::Json reply_json(const msg::ReplyBody& reply, const Target& target);

}  // namespace precis::admin
