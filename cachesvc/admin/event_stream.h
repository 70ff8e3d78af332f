// The events of one tenant's segments as a stream of Server-Sent Events. It asks the service for
// one page after another, as its client takes them, so a slow client holds one page.
// docs/guides/events.md has the form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cachesvc/admin/http_message.h"
#include "cachesvc/base/clock.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/server/service.h"
#include "precis/messages.h"

namespace precis::admin {

// Server's thread only.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  using Post = std::function<void(std::function<void()>)>;  // to the server's thread
  struct Asked {
    std::string tenant, from;  // from: the client's address, for the logs
    msg::ListEvents request;
  };
  // `held`: counts the stream while it lives.
  EventStream(Service& service, Asked asked, const Clock& clock, Post post,
              std::unique_ptr<GaugeHold> held)
      : service_(service),
        asked_(std::move(asked)),
        clock_(clock),
        post_(std::move(post)),
        held_(std::move(held)) {}

  // Asks for the first page. The response is the stream, or says why there is none.
  void begin(std::function<void(HttpResponse)> reply);

 private:
  using GivePart = std::function<void(std::optional<std::string>)>;
  using Done = std::function<void(const Status&)>;
  struct Page {
    Result<msg::Events> events;
    std::uint64_t since = 0;  // OperatorAccess::streams_since()
  };
  void next(GivePart give);
  void ask(Done done);
  Status take(Page page);

  Service& service_;
  Asked asked_;
  const Clock& clock_;
  const Post post_;
  const std::unique_ptr<GaugeHold> held_;
  std::optional<std::uint64_t> since_;
  std::uint64_t seen_ = 0;  // the service's activity() before the last page
  bool more_ = true;        // the last page had events
  bool ended_ = false;
  std::string text_;  // the client has not got it
  Clock::Time sent_{};
};

}  // namespace precis::admin
