// The server's half of the transport. Control messages travel both ways; bulk bytes move between
// registered memory, and the server alone moves them: it pulls from and pushes into memory that the
// client exposed. So no client ever holds a key to server memory, and a full server slows clients
// down by not pulling. The client's half is client/src/transport/client_transport.h; between
// processes both speak frames.h over sockets, within one process they meet in a loopback
// (cachesvc/embed/loopback.h).
//
// Threads: every call and every callback happens on the transport's EventLoop thread, except
// register_memory(), which any thread may call. Callbacks never run inside the call that was given
// them.
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

// Client memory that the server reads where it is, through a mapping of its own. The client can't
// take it back before this goes, nor make it end, but may write to it all the while: what is read
// twice may differ. Goes on the loop's thread; may outlive its connection.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual Bytes bytes() const = 0;  // of the whole region
};

using Completion = std::function<void(Status)>;

// The server's end of one client's connection. Destroying it closes it; pending completions run
// with kCanceled.
class Connection : public virtual Messages {
 public:
  // What the peer sends is taken in turns, for each of which `turns` is asked: it calls what it is
  // given, once, on the loop. So one who sends much waits for others. Before start().
  using Turns = std::function<void(std::function<void()>)>;
  virtual void take_turns(Turns) {}
  // Bytes of messages that the peer has not taken yet.
  virtual std::size_t unsent_bytes() const { return 0; }
  // Since when pull() and push() have got nowhere; none while nothing is under way.
  virtual std::optional<std::chrono::steady_clock::time_point> stalled_since() const { return {}; }

  // Bytes [offset, offset + into.size()) of the client's region into local registered
  // memory. `into` and the registration must live until `done`. Out of the region's bounds is
  // kInvalidArgument; a dead peer is kUnavailable.
  virtual void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                    const Registration& local, Completion done) = 0;
  // The gather list `from`, one range after the other, to `offset` of the client's
  // region.
  virtual void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
                    std::uint64_t offset, Completion done) = 0;

  // Null where the region can't be read in place, or not any more: then pull() says
  // why, or brings it.
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }

  // Where the client is, as `greet` was told.
  virtual std::string peer() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Any thread. kOutOfSpace or kUnsupported if the memory cannot be registered.
  virtual Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) = 0;

  // A client that wants in. What it says of itself is proved by hello.proof alone.
  struct Stranger {
    const Hello& hello;
    const Nonce& challenge;
    const std::string& peer;     // "10.0.0.7:40312", for people
    const std::string& address;  // what counts as one: "10.0.0.7", or "uid 1000" on this host
  };
  struct Greeting {
    Status status;       // not OK: refused, and told why
    std::string server;  // name and version
    std::string token;   // of the tenant; empty: it has none
  };
  struct Acceptor {
    std::function<Greeting(const Stranger&)> greet;
    std::function<void(std::unique_ptr<Connection>, const Hello& hello)> accepted;
    // Where set: a peer was dropped before it came to `greet`. A peer that just goes is not told.
    std::function<void(const std::string& peer, const Status& why)> turned_away = nullptr;
  };
  // Accepts connections at `address` ("host:port"; port 0 picks one) and returns the bound one.
  virtual Result<std::string> listen(const std::string& address, Acceptor acceptor) = 0;
  virtual void stop_listening() = 0;
  // How strangers reach it, for the log and `status`: whether other hosts can, and whether what
  // they say then is encrypted.
  virtual bool is_open_to_hosts() const = 0;
  virtual bool is_encrypted() const = 0;
  // Connections from now on use it, where the transport is encrypted.
  virtual void use_tls(std::shared_ptr<TlsContext>) {}
  // The RDMA device that clients' memory is reached by, in words, or "off".
  virtual std::string rdma() const { return "off"; }
};

}  // namespace precis
