// The TCP side of a link: carries the preface (preface.h), then stays open as the sign of life.
// Everything happens on the loop's thread; a callback never runs after its object is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/preface.h"

namespace precis {

class PrefaceSocket {
 public:
  virtual ~PrefaceSocket() = default;  // closes, also where the descriptor was copied

  // One whole, checked frame. One read at a time.
  virtual void read(std::function<void(Result<preface::Frame>)> done) = 0;
  // Queues a frame; failures show in the next read() or watch().
  virtual void write(preface::Kind kind, Bytes body) = 0;
  // After the preface: calls `gone` once, when the peer closes, dies or sends anything more.
  virtual void watch(std::function<void(Status)> gone) = 0;
  // No `gone` from now on.
  virtual void unwatch() = 0;
  virtual int descriptor() const = 0;
  // "10.0.0.7:40312", for people.
  virtual std::string peer() const = 0;
};

// Sends a last frame and sees it out: the peer can read it before the connection ends, within a
// bound.
void send_last(EventLoop& loop, std::unique_ptr<PrefaceSocket> socket, preface::Kind kind,
               Bytes body);

class PrefaceListener {
 public:
  virtual ~PrefaceListener() = default;  // stops
  virtual std::string address() const = 0;
};

// `address`: "host:port", "[v6]:port"; port 0 picks one. kInvalidArgument if it cannot be had.
Result<std::unique_ptr<PrefaceListener>> preface_listen(
    EventLoop& loop, const std::string& address,
    std::function<void(std::unique_ptr<PrefaceSocket>)> on_connection);

// Connects until the returned handle is destroyed.
class PrefaceConnect {
 public:
  virtual ~PrefaceConnect() = default;
};
std::unique_ptr<PrefaceConnect> preface_connect(
    EventLoop& loop, const std::string& address,
    std::function<void(Result<std::unique_ptr<PrefaceSocket>>)> done);

// kInvalidArgument if `address` is not of the form that preface_listen() takes; whether it can be
// had is not asked.
Status check_address(const std::string& address);

// "127.0.0.1:7470", "[::1]:0", "localhost:1"; false for what is no address.
bool is_loopback(const std::string& address);

}  // namespace precis
