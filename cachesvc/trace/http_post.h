// Sends bodies to an HTTP endpoint, one at a time.
#pragma once

#include <memory>
#include <string>

#include "precis/status.h"

namespace precis::trace {

struct Endpoint {
  std::string host, port;
  std::string authority;  // both, as in the URL
  std::string target;     // the path
};
// Parses http://HOST:PORT/PATH. kInvalidArgument that states the right form.
Result<Endpoint> parse_endpoint(const std::string& url);

class HttpPost {
 public:
  explicit HttpPost(Endpoint endpoint);
  // Waits for nobody, also while a name is being looked up.
  ~HttpPost();

  // [blocking] Sends JSON over a connection of its own. OK if the endpoint has accepted it.
  // kTimedOut after limits::kSpanPostSeconds. At most limits::kSpanAnswerBytesMax of an answer are
  // read, and nothing but its status is used. On one thread.
  Status post(std::string json);
  // Any thread. From now on a post(), also one in progress, takes at most
  // limits::kSpanLastPostSeconds.
  void hurry();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::trace
