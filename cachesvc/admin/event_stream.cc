#include "cachesvc/admin/event_stream.h"

#include <chrono>
#include <utility>

#include "cachesvc/admin/call.h"
#include "precis/limits.h"
#include "schema/json/message_json.h"

namespace precis::admin {
namespace {

constexpr const char* kContentType = "text/event-stream";
constexpr std::chrono::seconds kHeartbeat{limits::kEventHeartbeatSeconds};

std::string text_of(const std::string& event, const message_json::Json& data,
                    const std::string& position = "") {
  const std::string id = position.empty() ? "" : "id: " + position + "\n";
  return id + "event: " + event + "\ndata: " + message_json::json_line(data) + "\n\n";
}

std::string text_of(const msg::KvEvent& event) {
  const auto json = message_json::to_json(event);
  return text_of(json["event"].get<std::string>(), json, event.position);
}

Result<msg::Events> events_in(const Result<std::vector<std::byte>>& answer) {
  PRECIS_TRY(answer.status());
  PRECIS_ASSIGN(msg::ReplyBody body, reply_in(*answer));
  auto* const events = std::get_if<msg::Events>(&body);
  if (events == nullptr) return Status::internal("the service sent no events");
  return std::move(*events);
}

}  // namespace

void EventStream::begin(std::function<void(HttpResponse)> reply) {
  ask([self = shared_from_this(), reply = std::move(reply)](const Status& status) {
    if (!status.ok()) return reply(error_response(status));
    HttpResponse response{200, "", kContentType};
    response.parts = [self](GivePart give) { self->next(std::move(give)); };
    self->sent_ = self->clock_.now();
    reply(std::move(response));
  });
}

void EventStream::next(GivePart give) {
  if (ended_) return give(std::nullopt);
  if (text_.empty() && (more_ || service_.operators().activity() != seen_)) {
    return ask([self = shared_from_this(), give = std::move(give)](const Status& status) {
      if (status.code() == StatusCode::kRejected) {
        self->more_ = true;  // asks again, although no other event may come
      } else if (!status.ok()) {
        self->ended_ = true;
        self->text_ = text_of("end", {{"event", "end"},
                                      {"position", nullptr},
                                      {"error", status_code_name(status.code())},
                                      {"message", status.message()}});
      }
      self->sent_ = self->clock_.now();
      give(std::exchange(self->text_, {}));
    });
  }
  if (text_.empty() && clock_.now() - sent_ >= kHeartbeat) text_ = ":\n\n";
  if (!text_.empty()) sent_ = clock_.now();
  give(std::exchange(text_, {}));
}

// The answer comes on the loop, and is taken on the server's thread.
void EventStream::ask(Done done) {
  seen_ = service_.operators().activity();
  service_.loop().post([self = shared_from_this(), &service = service_, asked = asked_,
                        post = post_, done = std::move(done)]() mutable {
    OperatorAccess& access = service.operators();
    const std::uint64_t since = access.streams_since(asked.tenant);
    const auto called = [self, post, since,
                         done = std::move(done)](const Result<std::vector<std::byte>>& answer) {
      post([self, since, done, answer] { done(self->take({events_in(answer), since})); });
    };
    call(service.loop(), access, asked.tenant, std::move(asked.from), asked.request, called);
  });
}

Status EventStream::take(Page page) {
  if (since_ && *since_ != page.since) {
    return Status::denied("the configuration of the stream's tenant has changed");
  }
  since_ = page.since;
  PRECIS_TRY(page.events.status());
  more_ = !page.events->rows.empty();
  for (const msg::KvEvent& row : page.events->rows) text_ += text_of(row);
  asked_.request.position = std::move(page.events->next);
  return {};
}

}  // namespace precis::admin
