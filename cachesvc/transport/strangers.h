// Sockets whose peers are not admitted yet. Each has a deadline; there are few of them in all and
// from one address, and the oldest of the address that has most makes room for the next: so silent
// peers keep nobody out. Nothing that one says is parsed but a Hello or a Bind of at most
// limits::kHelloBytesMax. Used on the loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/control_stream.h"
#include "cachesvc/net/handshake.h"
#include "cachesvc/net/tls.h"
#include "precis/greeting.h"

namespace precis {

class Strangers {
 public:
  struct Peer {
    PeerName name;
    Nonce challenge{};
    std::string socket_kind;  // "tcp", "tls" or "unix"
  };
  struct Handlers {
    // What a Hello is answered; OK admits, and `admitted` is called with the stream next.
    std::function<Welcome(const Peer&, const Hello&)> greet;
    std::function<void(const Peer&, const Hello&, const Welcome&, std::shared_ptr<ControlStream>)>
        admitted;
    // OK binds, and `bound` is called with the socket next.
    std::function<Status(const Peer&, const Bind&)> may_bind;
    std::function<void(const Bind&, std::unique_ptr<Socket>)> bound;
    // A peer was dropped before it said what could be answered.
    std::function<void(const std::string& peer, const Status& why)> turned_away;
  };
  Strangers(EventLoop& loop, std::chrono::milliseconds patience, Handlers handlers)
      : loop_(loop), patience_(patience), handlers_(std::move(handlers)) {}
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // `tls` may be null.
  void add(Descriptor descriptor, const TlsContext* tls);
  // Drops all of them; no callback of theirs comes back.
  void clear();
  std::size_t size() const { return guests_.size(); }

 private:
  struct Guest {
    Peer peer;
    std::unique_ptr<Handshake> handshake;
    std::shared_ptr<ControlStream> control;
    std::unique_ptr<Socket> leaving;  // refused, until it closes or its time is over
    std::unique_ptr<EventLoop::Watch> leaving_watch;
    std::unique_ptr<EventLoop::Timer> deadline;
    bool gone = false;  // admitted, bound or forgotten; its callbacks may still come
  };
  using Place = std::list<std::shared_ptr<Guest>>::iterator;
  void make_room(const std::string& address);
  void challenge(const std::shared_ptr<Guest>& guest, std::unique_ptr<Socket> socket);
  void on_frame(const std::shared_ptr<Guest>& guest, FrameKind kind, Bytes body);
  void on_hello(const std::shared_ptr<Guest>& guest, const Hello& hello);
  void on_bind(const std::shared_ptr<Guest>& guest, const Bind& bind);
  // Says why and lets the peer read it: what it still sends is thrown away until it closes.
  void refuse(const std::shared_ptr<Guest>& guest, const Status& why, const std::string& server);
  void drop(const std::shared_ptr<Guest>& guest, const Status& why);
  void forget(const std::shared_ptr<Guest>& guest);

  EventLoop& loop_;
  const std::chrono::milliseconds patience_;
  const Handlers handlers_;
  std::list<std::shared_ptr<Guest>> guests_;  // the oldest first; shared with callbacks under way
};

}  // namespace precis
