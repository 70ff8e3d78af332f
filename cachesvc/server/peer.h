// One connected client: takes its requests apart, answers each once, and ends with its connection.
// Loop thread only. Lives until the connection is closed and the last of its requests has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/server/handlers.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  Peer(const Handlers::Parts& parts, Log& log, Tenant tenant, std::string client,
       std::unique_ptr<Connection> connection);
  ~Peer();

  // `closed` is called once, when the connection has ended.
  void start(std::function<void(const std::shared_ptr<Peer>&)> closed);
  void close();

 private:
  void on_message(const std::vector<std::byte>& message);
  void on_closed(const Status& why);
  Task<void> answer(std::shared_ptr<Peer> self, msg::Request request);
  void reply(std::uint64_t id, Handlers::Answer answer);

  const Handlers::Parts& parts_;
  Log& log_;
  std::string client_;
  std::string tenant_name_;
  std::unique_ptr<Connection> connection_;
  Handlers handlers_;  // its puts' memory goes before the connection that fills it
  std::function<void(const std::shared_ptr<Peer>&)> closed_;
  bool open_ = true;
  std::uint32_t in_flight_ = 0;
};

}  // namespace precis
