// Requests and responses of the admin port, without the HTTP library's types.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "precis/status.h"

namespace precis::admin {

enum class Method { kGet, kPost, kPut, kDelete };
std::string_view method_name(Method method);  // "GET"

// A request's target, percent-decoded: "/api/v1/models?after=00" has the parts api, v1, models.
struct Target {
  std::vector<std::string> parts;
  std::map<std::string, std::string> query;
};
// kInvalidArgument if the target does not begin with a slash, an escape is invalid or stands for a
// control character, or a name of the query is given twice.
Result<Target> parse_target(std::string_view target);

struct HttpRequest {
  Method method = Method::kGet;
  Target target;
  std::string from;  // the client's address: "127.0.0.1"
  // Headers; empty if the request has none.
  std::string host, origin, authorization, content_type, if_none_match, accept, last_event_id;
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Set for a response without an end, which has no body. The server calls it for one part after
  // another, when the client has taken the one before. It calls its argument once, on any thread:
  // with an empty part if there is nothing now, with none at the end.
  std::function<void(std::function<void(std::optional<std::string>)>)> parts = {};
};

// {"error": the code's name, "message": its message}, with the HTTP status for its code, and
// Retry-After if it tells when to come back.
HttpResponse error_response(const Status& status);
// As above, with another HTTP status.
HttpResponse error_response(unsigned http_status, const Status& status);

}  // namespace precis::admin
