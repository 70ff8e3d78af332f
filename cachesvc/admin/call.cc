#include "cachesvc/admin/call.h"

#include <memory>
#include <utility>

namespace precis::admin {
namespace {

// A client's connection that brings one request and takes one reply.
class CallConnection final : public Connection {
 public:
  CallConnection(EventLoop& loop, std::string from, std::vector<std::byte> request, Called done)
      : loop_(loop), from_(std::move(from)), request_(std::move(request)), done_(std::move(done)) {}
  ~CallConnection() override { close(); }

  void start(Handlers handlers) override {
    *handlers_ = std::move(handlers);
    loop_.post([handlers = handlers_, request = std::move(request_)]() mutable {
      if (const auto call = handlers->on_message) call(std::move(request));
    });
  }
  void send(std::vector<std::byte> message) override {
    finish(std::move(message));
    loop_.post([handlers = handlers_] {
      if (const auto call = handlers->on_closed) call(Status::unavailable("it is answered"));
    });
  }
  void close() override {
    *handlers_ = {};
    finish(Status::unavailable("the service is stopping"));
  }
  std::string description() const override { return "admin port"; }
  std::string peer() const override { return from_; }

  // No request of the API moves bulk bytes.
  void pull(const RemoteRegion&, std::uint64_t, MutableBytes, const Registration&,
            Completion done) override {
    refuse(std::move(done));
  }
  void push(std::vector<Bytes>, const Registration&, const RemoteRegion&, std::uint64_t,
            Completion done) override {
    refuse(std::move(done));
  }

 private:
  void refuse(Completion done) {
    loop_.post([done = std::move(done)] {
      done(Status::unsupported("the admin port moves no bulk bytes"));
    });
  }
  void finish(Result<std::vector<std::byte>> answer) {
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(answer));
  }

  EventLoop& loop_;
  const std::string from_;
  std::vector<std::byte> request_;
  Called done_;  // null once it is called
  const std::shared_ptr<Handlers> handlers_ = std::make_shared<Handlers>();
};

}  // namespace

void call(EventLoop& loop, OperatorAccess& access, const std::string& tenant, std::string from,
          const msg::RequestBody& request, Called done) {
  Status may = access.may_connect(tenant);
  if (may.ok()) may = access.may_ask(request);
  if (!may.ok()) return done(may);
  access.connect(
      tenant, std::make_unique<CallConnection>(loop, std::move(from),
                                               encode(msg::Request{1, request}), std::move(done)));
}

Result<msg::ReplyBody> reply_in(const std::vector<std::byte>& answer) {
  PRECIS_ASSIGN(const msg::ServerMessage message, decode_server_message(answer));
  const auto* const reply = std::get_if<msg::Reply>(&message);
  if (reply == nullptr) return Status::internal("the service sent no reply");
  PRECIS_TRY(reply->status);
  return reply->body;
}

}  // namespace precis::admin
