// Sockets whose peers are not admitted yet. Each has a deadline. Their number is limited per
// address and in total. A new socket past a limit replaces the oldest one of its own address, or of
// the address with the most. So silent peers cannot keep others out. Only a Hello or a Bind of at
// most limits::kHelloBytesMax is parsed. Used on the loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/greeting_socket.h"
#include "cachesvc/net/tls.h"
#include "precis/greeting.h"

namespace precis {

class PendingConnections {
 public:
  struct Peer {
    PeerName name;
    Nonce challenge{};
  };
  // Decides on the peers, and takes the sockets of those it admits.
  class Host {
   public:
    virtual ~Host() = default;
    // Returns the answer to a Hello. OK admits the peer, and admitted() is called next with the
    // socket.
    virtual Welcome greet(const Peer&, const Socket&, const Hello&) = 0;
    virtual void admitted(const Peer&, std::unique_ptr<Socket>, const Hello&, const Welcome&) = 0;
    // OK binds, and bound() is called next with the socket.
    virtual Status may_bind(const Peer&, const Bind&) = 0;
    virtual void bound(std::unique_ptr<Socket>, const Bind&) = 0;
    // A peer was dropped, or refused without a server's answer.
    virtual void refused(const Peer&, const Status& why) = 0;
  };
  PendingConnections(EventLoop& loop, std::chrono::milliseconds timeout, Host& host)
      : loop_(loop), timeout_(timeout), host_(host) {}
  PendingConnections(const PendingConnections&) = delete;
  PendingConnections& operator=(const PendingConnections&) = delete;

  // `tls` may be null.
  void add(Descriptor descriptor, const TlsContext* tls);
  // Drops all peers without notice to the host.
  void clear();

 private:
  struct Pending {
    Pending(EventLoop& loop, std::unique_ptr<Socket> made) : socket(loop, std::move(made)) {}
    Peer peer;
    GreetingSocket socket;
    bool is_refused = false;  // refused; waits for its close or its deadline
    bool is_gone = false;     // admitted or erased
    std::unique_ptr<EventLoop::Timer> deadline;
    std::optional<Task<void>> greeting;
  };
  void make_room(const std::string& address);
  Task<void> greet(Pending& pending);
  // Admits a peer that the host accepts. Otherwise returns the reason for the peer, and sets
  // `server` if the host gave its name.
  Status answer(Pending& pending, const GreetingSocket::Frame& frame, std::string& server);
  void drop(Pending& pending, const Status& why);
  void erase(Pending& pending);

  EventLoop& loop_;
  const std::chrono::milliseconds timeout_;
  Host& host_;
  std::list<std::unique_ptr<Pending>> pending_;  // oldest first
};

}  // namespace precis
