// The server's side of the transport. Control messages travel both ways. Bulk bytes move between
// registered memory, and only the server moves them: it pulls from and pushes into memory that the
// client exposed. So no client ever holds a key to server memory, and a full server slows its
// clients down by not pulling. The client's side is client/src/transport/client_transport.h.
// Between processes both sides use frames.h over sockets; within one process they use a loopback
// (cachesvc/embed/loopback.h).
//
// Threads: every call and callback runs on the transport's EventLoop thread, except
// register_memory(), which any thread may call. A callback never runs inside the call that received
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/net/messages.h"
#include "cachesvc/net/registration.h"
#include "precis/greeting.h"
#include "precis/remote_region.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class TlsContext;

// Client memory that the server reads in place, through its own mapping. The client cannot withdraw
// it or force its release, but may write to it at any time: two reads may differ. Destroy it on the
// loop's thread; it may outlive its connection.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual Bytes bytes() const = 0;  // the whole region
};

using Completion = std::function<void(Status)>;

// The server's end of one client's connection. Its destructor closes the connection; pending
// completions run with kCanceled.
class Connection : public virtual Messages {
 public:
  // Received messages are processed in turns. The connection asks `turns` for each turn; `turns`
  // calls its argument once, on the loop. So a busy client waits for others. Call it before
  // start().
  using Turns = std::function<void(std::function<void()>)>;
  virtual void take_turns(Turns) {}
  // Bytes of messages that the peer has not yet accepted.
  virtual std::size_t unsent_bytes() const { return 0; }
  // The time since which pull() and push() have made no progress. None while no transfer is in
  // progress.
  virtual std::optional<std::chrono::steady_clock::time_point> stalled_since() const { return {}; }

  // Pulls bytes [offset, offset + into.size()) of the client's region into registered local memory.
  // `into` and the registration must live until `done`. kInvalidArgument outside the region's
  // bounds, kUnavailable if the peer is gone.
  virtual void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                    const Registration& local, Completion done) = 0;
  // Pushes the ranges of `from`, one after another, to `offset` of the client's region. Lifetimes
  // and errors as pull().
  virtual void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
                    std::uint64_t offset, Completion done) = 0;

  // Returns null if the region cannot be read in place now. Then pull() moves its bytes, or reports
  // why not.
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }

  // The fastest way that bulk bytes can go, for metrics: "shm", "rdma", or the socket's kind, such
  // as "tcp"; empty: none.
  virtual std::string transport() const { return {}; }
  // The client's address, as passed to `greet`.
  virtual std::string peer() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Any thread. kOutOfSpace or kUnsupported if the memory cannot be registered.
  virtual Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) = 0;

  // A client that asks for admission. Only hello.proof proves its claims.
  struct LoginAttempt {
    const Hello& hello;
    const Nonce& challenge;
    const std::string& peer;     // "10.0.0.7:40312", for users
    const std::string& address;  // the unit of limits: "10.0.0.7", or "uid 1000" on this host
  };
  struct Greeting {
    Status status;           // not OK: refused, and the client receives it
    std::string server;      // name and version
    std::string token;       // of the tenant; empty: no token
    bool clustered = false;  // the service is in a cluster
  };
  struct Acceptor {
    std::function<Greeting(const LoginAttempt&)> greet;
    // Called for a client that `greet` admits, before the next `greet`.
    std::function<void(std::unique_ptr<Connection>, const Hello& hello)> accepted;
    // If set, called when a peer is dropped before `greet`. Not called for a peer that just closes.
    std::function<void(const std::string& peer, const Status& why)> refused = nullptr;
  };
  // Accepts connections at `address` ("host:port"; port 0 picks one) and returns the bound address.
  virtual Result<std::string> listen(const std::string& address, Acceptor acceptor) = 0;
  virtual void stop_listening() = 0;
  // How clients reach it, for the log and `status`: whether other hosts can connect, and whether
  // the traffic is encrypted.
  virtual bool is_open_to_hosts() const = 0;
  virtual bool is_encrypted() const = 0;
  // New connections use these settings, if the transport is encrypted.
  virtual void use_tls(std::shared_ptr<TlsContext>) {}
  // The RDMA device for clients' memory, as text, or "off".
  virtual std::string rdma() const { return "off"; }
};

}  // namespace precis
