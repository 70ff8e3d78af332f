// Sockets whose peers are not admitted yet. Each has a deadline; there are few of them in all and
// from one address, and the oldest of the address that has most makes room for the next: so silent
// peers keep nobody out. Nothing that one says is parsed but a Hello or a Bind of at most
// limits::kHelloBytesMax. Used on the loop's thread.
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

class Strangers {
 public:
  struct Peer {
    PeerName name;
    Nonce challenge{};
  };
  // Who decides on them, and takes those that are let in.
  class Host {
   public:
    virtual ~Host() = default;
    // What a Hello is answered; OK admits, and admitted() is called with the socket next.
    virtual Welcome greet(const Peer&, const Socket&, const Hello&) = 0;
    virtual void admitted(const Peer&, std::unique_ptr<Socket>, const Hello&, const Welcome&) = 0;
    // OK binds, and bound() is called with the socket next.
    virtual Status may_bind(const Peer&, const Bind&) = 0;
    virtual void bound(std::unique_ptr<Socket>, const Bind&) = 0;
    // A peer was dropped before it said what could be answered.
    virtual void turned_away(const Peer&, const Status& why) = 0;
  };
  Strangers(EventLoop& loop, std::chrono::milliseconds patience, Host& host)
      : loop_(loop), patience_(patience), host_(host) {}
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // `tls` may be null.
  void add(Descriptor descriptor, const TlsContext* tls);
  // Drops all of them; the host hears of none of them any more.
  void clear();

 private:
  struct Guest {
    Guest(EventLoop& loop, std::unique_ptr<Socket> made) : socket(loop, std::move(made)) {}
    Peer peer;
    GreetingSocket socket;
    bool is_leaving = false;  // refused, until it closes or its time is over
    bool is_gone = false;     // let in or forgotten
    std::unique_ptr<EventLoop::Timer> deadline;
    std::optional<Task<void>> greeting;
  };
  void make_room(const std::string& address);
  Task<void> greet(Guest& guest);
  // Lets in whom the host knows; else the status and the server's name are the answer.
  Status answer(Guest& guest, const GreetingSocket::Frame& frame, std::string& server);
  void drop(Guest& guest, const Status& why);
  void forget(Guest& guest);

  EventLoop& loop_;
  const std::chrono::milliseconds patience_;
  Host& host_;
  std::list<std::unique_ptr<Guest>> guests_;  // the oldest first
};

}  // namespace precis
