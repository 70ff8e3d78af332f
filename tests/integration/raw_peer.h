// A client without the client library's checks: once admitted, it sends any bytes it is given.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "client/src/transport/client_transport.h"
#include "precis/messages.h"

namespace precis::testing {

class RawPeer {
 public:
  RawPeer();
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // The service's answer to the greeting; after an OK one, the peer is connected.
  Result<Welcome> connect(const std::string& address, const Login& login = {});
  // Sends and waits for the next reply; an error if the connection ended.
  Result<msg::Reply> call(msg::RequestBody body);
  Result<msg::Reply> receive();
  void send(std::vector<std::byte> message);
  Status wait_closed();
  // Sends, and then does nothing until resume(): it reads no message and no byte.
  void send_and_stand_still(std::vector<std::byte> message);
  void resume();

  // Memory of `size_bytes` open to the service.
  RemoteRegion expose(std::size_t size_bytes);

 private:
  void on_loop(std::function<void()> fn);

  AsioLoop loop_;
  std::unique_ptr<ClientTransport> transport_;
  std::thread thread_;
  std::unique_ptr<ClientConnection> connection_;  // for the loop's thread
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<Registration>> registrations_;
  std::vector<std::unique_ptr<Exposure>> exposures_;
  std::uint64_t next_id_ = 1;
  std::promise<void> resumed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> received_;  // guarded by mutex_
  Status closed_;                                // guarded by mutex_
};

}  // namespace precis::testing
