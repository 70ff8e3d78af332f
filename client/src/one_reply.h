// The reply to one request, awaited by one thread.
#pragma once

#include <chrono>
#include <future>
#include <utility>

#include "client/src/pending_requests.h"

namespace precis {

class OneReply final : public ReplySink {
 public:
  void on_reply(Result<msg::ReplyBody> reply) override {
    promise_.set_value(std::move(reply));
    there_ = true;
  }
  bool there() const { return there_; }  // on the loop's thread
  bool ready() const {                   // any thread
    return future_.wait_for(std::chrono::milliseconds{0}) == std::future_status::ready;
  }
  // False if the reply has not come by then.
  bool wait_until(std::chrono::steady_clock::time_point time) const {
    if (time != std::chrono::steady_clock::time_point::max()) {
      return future_.wait_until(time) == std::future_status::ready;
    }
    future_.wait();
    return true;
  }
  Result<msg::ReplyBody> take() { return future_.get(); }

 private:
  bool there_ = false;
  std::promise<Result<msg::ReplyBody>> promise_;
  std::future<Result<msg::ReplyBody>> future_ = promise_.get_future();
};

}  // namespace precis
