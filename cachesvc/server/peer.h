// One connected client: takes its requests apart, answers each once, and ends with its connection.
// Loop thread only. Lives until the connection is closed and the last of its requests has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/server/handlers.h"
#include "cachesvc/server/request_name.h"
#include "cachesvc/server/unread_answers.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// A request up to this size is decoded on the loop: about what a path has that is hashed there.
inline constexpr std::size_t kSmallRequestBytes = 256u << 10;

class Peer : public std::enable_shared_from_this<Peer>, public Reader {
 public:
  Peer(const Handlers::Parts& parts, Log& log, Tenant tenant, std::string client,
       std::unique_ptr<Connection> connection);
  ~Peer() override;

  // `closed` is called once, when the connection has ended.
  void start(std::function<void(const std::shared_ptr<Peer>&)> closed);
  void close(const std::string& why);
  // Closes the connection of a client that harms the others, saying why in the log.
  void shed(const std::string& why) override;

  const std::string& tenant() const override { return tenant_name_; }
  // The client, for the audit log.
  AuditWho who() const { return {tenant_name_, client_, connection_->peer()}; }
  std::size_t unsent_bytes() const override { return open_ ? connection_->unsent_bytes() : 0; }
  // While others wait for memory: gives up what its client does not use. `silence`: how long it may
  // have moved nothing.
  void give_way(std::chrono::steady_clock::duration silence);

 private:
  // What a request holds until it is answered.
  struct Admitted {
    Quota::Hold request, bytes;
  };
  void on_message(std::vector<std::byte> message);
  // A message that takes long to decode: not on the loop.
  Task<void> take_long(std::shared_ptr<Peer> self, std::vector<std::byte> message,
                       Admitted admitted);
  void not_understood(std::uint64_t id, std::size_t size_bytes, const Status& why);
  void on_closed(const Status& why);
  // `ends`: it ends something that the connection has.
  Result<Admitted> admit(bool ends, std::size_t size_bytes);
  Task<void> answer(std::shared_ptr<Peer> self, msg::Request request, Admitted admitted);
  // `of`: subject_of() the request.
  void reply(std::uint64_t id, Handlers::Answer answer, RequestName request,
             const std::string& of = {});
  // kRejected where too much waits to be read, kInvalidArgument where it is too large to be sent.
  Status send(std::vector<std::byte> message);
  void note_failed(RequestName request, const std::string& of, const Status& why);

  const Handlers::Parts& parts_;
  Log& log_;
  std::string client_;
  std::string tenant_name_;
  std::unique_ptr<Connection> connection_;
  const Owner owner_;  // this connection
  Quota::Part connection_part_, request_part_, byte_part_;
  const Result<Quota::Hold> counted_;  // as a connection; greeted ones find room
  Handlers handlers_;                  // its puts' memory goes before the connection that fills it
  std::function<void(const std::shared_ptr<Peer>&)> closed_;
  bool open_ = true;
  bool told_not_understood_ = false;  // a request of its was, and is in the log
  std::uint32_t in_flight_ = 0;
};

}  // namespace precis
