// Posts JSON to HTTP endpoints, one request at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cachesvc/net/tls.h"
#include "precis/status.h"

namespace precis {

struct HttpEndpoint {
  bool encrypted = false;  // https
  std::string host, port;
  std::string authority;  // both, as in the URL
  std::string target;     // the path and what follows it; may be empty
};
// Parses http://HOST:PORT/PATH, or https, where the path may be missing. kInvalidArgument without a
// message for any other text: the caller states the form that it wants.
Result<HttpEndpoint> parse_http_endpoint(std::string_view url);

class HttpPost {
 public:
  struct Limits {
    std::chrono::milliseconds time;
    std::chrono::milliseconds last_time;  // after hurry()
    std::size_t answer_bytes;             // of the answer's body
  };
  struct Answer {
    unsigned status = 0;
    std::string body;
  };
  // Whether the part of the answer's body that has arrived is enough.
  using Enough = std::function<bool(std::string_view body)>;

  // `tls` is for encrypted endpoints.
  explicit HttpPost(std::shared_ptr<const TlsContext> tls = nullptr);
  // Does not wait, even while a name is being looked up.
  ~HttpPost();

  // [blocking] Sends JSON over a connection of its own and returns the answer, whatever its HTTP
  // status. With `enough`, the answer ends once that returns true. kTimedOut after limits.time;
  // kUnavailable for other errors, and for an answer that is too long. On one thread.
  Result<Answer> post(const HttpEndpoint& to, std::string json, const Limits& limits,
                      Enough enough = {});
  // Any thread. From now on a post(), also one in progress, takes at most limits.last_time.
  void hurry();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
