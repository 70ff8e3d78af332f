// One connected client: decodes its requests, answers each once, and ends with its connection. Loop
// thread only. It lives until the connection is closed and its last request has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/server/handlers.h"
#include "cachesvc/server/request_subject.h"
#include "cachesvc/server/unread_answers.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// A request up to this size is decoded on the loop: about the size of a path that is hashed there.
inline constexpr std::size_t kSmallRequestBytes = 256u << 10;

class Peer : public std::enable_shared_from_this<Peer>, public Reader {
 public:
  Peer(const HandlerParts& parts, Tenant tenant, std::string client,
       std::unique_ptr<Connection> connection);
  ~Peer() override;

  // `closed` is called once, when the connection has ended.
  void start(std::function<void(const std::shared_ptr<Peer>&)> closed);
  void close(const std::string& why);
  // Closes the connection of a client that harms the others, and logs why.
  void disconnect(const std::string& why) override;

  const std::string& tenant() const override { return tenant_.name; }
  const Tenant& admitted() const { return tenant_; }
  // The client, for the audit log.
  AuditWho who() const { return {tenant_.name, client_, connection_->peer()}; }
  std::size_t unsent_bytes() const override { return open_ ? connection_->unsent_bytes() : 0; }
  // Called while requests wait for memory. Gives up the client's puts and its connection if they
  // have made no progress for `silence`.
  void free_for_waiters(std::chrono::steady_clock::duration silence);

 private:
  // The quota that a request holds until it is answered.
  struct Admitted {
    Quota::Hold request, bytes;
  };
  void on_message(std::vector<std::byte> message);
  // Decodes a long message off the loop.
  Task<void> take_long(std::shared_ptr<Peer> self, std::vector<std::byte> message,
                       Admitted admitted);
  void not_understood(std::uint64_t id, std::size_t size_bytes, const Status& why);
  void on_closed(const Status& why);
  // `ends`: the request aborts a put or cancels a get of this connection.
  Result<Admitted> admit(bool ends, std::size_t size_bytes);
  Task<void> answer(std::shared_ptr<Peer> self, msg::Request request, Admitted admitted);
  // `of`: subject_of() the request.
  void reply(std::uint64_t id, Answer answer, const RequestKind& request,
             const std::string& of = {});
  // kRejected if too many bytes of answers are unread, kInvalidArgument if the message is too large
  // to send.
  Status send(std::vector<std::byte> message);
  void note_failed(const RequestKind& request, const std::string& of, const Status& why);

  const HandlerParts& parts_;
  std::string client_;
  const Tenant tenant_;
  std::unique_ptr<Connection> connection_;
  const Owner owner_;  // this connection
  Quota::Part connection_part_, request_part_, byte_part_;
  const Result<Quota::Hold> counted_;  // this connection; the greeter has checked that it fits
  Handlers handlers_;                  // destroyed before the connection, which they use
  std::function<void(const std::shared_ptr<Peer>&)> closed_;
  bool open_ = true;
  bool told_not_understood_ = false;  // the log has a line about one of its messages
  std::uint32_t in_flight_ = 0;
};

}  // namespace precis
