// The transport seam. Two implementations: UCX (ucx_transport.h) and in-process loopback
// (loopback_transport.h). Control messages travel both ways; bulk bytes move between registered
// memory, and the server alone moves them: it pulls from and pushes into memory that the client
// exposed, so no client ever holds a key to server memory, and a full server slows clients down by
// not pulling.
//
// Threads: every call and every callback happens on the transport's EventLoop thread, except
// register_memory(), allocate_memory() and expose(), which any thread may call. Callbacks never run
// inside the call that was given them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precis/messages.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Memory known to the transport, until destroyed. Does not own the bytes, unless the transport made
// them (allocate_memory()).
class Registration {
 public:
  virtual ~Registration() = default;
  virtual MutableBytes bytes() const = 0;
};

// Client memory that the server may reach, until destroyed. Destroying it ends the peer's access:
// operations under way on it fail or finish first.
class Exposure {
 public:
  virtual ~Exposure() = default;
  virtual RemoteRegion region() const = 0;
};

// Client memory that the server reads where it is, through a mapping of its own. The client can't
// take it back before this goes, nor make it end, but may write to it all the while: what is read
// twice may differ. Goes on the loop's thread; may outlive its connection.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual Bytes bytes() const = 0;  // of the whole region
};

using Completion = std::function<void(Status)>;

// Both sides of one client's link. Destroying it closes it; pending completions run with kCanceled.
class Connection {
 public:
  struct Handlers {
    // A whole control message. Messages arrive in the order they were sent, and after the bytes of
    // every push that completed before they were sent.
    std::function<void(std::vector<std::byte>)> on_message;
    // Once, when the peer is gone or broke the protocol; no on_message follows.
    std::function<void(Status)> on_closed;
  };
  virtual ~Connection() = default;
  // Before any message is delivered; they queue until then.
  virtual void start(Handlers handlers) = 0;
  // Queues one message of at most limits::kMessageBytesMax. Failures show as on_closed. More than
  // limits::kSendQueueBytesMax waiting means the peer does not read: the connection closes.
  virtual void send(std::vector<std::byte> message) = 0;
  virtual void close() = 0;
  // Bytes of messages that the peer has not taken yet.
  virtual std::size_t unsent_bytes() const { return 0; }
  // Since when pull() and push() have got nowhere; none while nothing is under way.
  virtual std::optional<std::chrono::steady_clock::time_point> stalled_since() const { return {}; }

  // Server side: bytes [offset, offset + into.size()) of the client's region into local registered
  // memory. `into` and the registration must live until `done`. Out of the region's bounds is
  // kInvalidArgument; a dead peer is kUnavailable.
  virtual void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                    const Registration& local, Completion done) = 0;
  // Server side: the gather list `from`, one range after the other, to `offset` of the client's
  // region.
  virtual void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
                    std::uint64_t offset, Completion done) = 0;

  // Server side: null where the region can't be read in place, or not any more: then pull() says
  // why, or brings it.
  virtual std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion&) { return nullptr; }

  // Client side: `memory`, a part of the registered, becomes reachable to this connection's server.
  virtual Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                                   MutableBytes memory) = 0;

  // "loopback", "shm (one-sided)", "tcp (active messages)": for people and metrics.
  virtual std::string description() const = 0;
  // Who is at the other end, as `greet` was told; on a client, the address that it connected to.
  virtual std::string peer() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Any thread. kOutOfSpace or kUnsupported if the memory cannot be registered.
  virtual Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) = 0;
  // Any thread. Memory of the transport's own, which peers reach the fastest: at least
  // `size_bytes`, from a huge page's boundary on, zeros; it goes with its registration. Errors as
  // above.
  virtual Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) = 0;

  // Server: accepts connections at `address` ("host:port"; port 0 picks one). `greet` sees a peer's
  // Hello bytes and where it is ("10.0.0.7:40312", for people), and says what to answer; an
  // accepted connection is handed to `accepted`. A peer that speaks garbage, another preface
  // version, too much or too slowly is answered if possible and dropped.
  struct Greeting {
    std::vector<std::byte> reply;  // HelloReply bytes, sent in either case
    bool accept = false;
  };
  struct Acceptor {
    std::function<Greeting(Bytes hello, const std::string& peer)> greet;
    std::function<void(std::unique_ptr<Connection>, Bytes hello)> accepted;
    // Where set: of a peer that never came to `greet`, or that was welcome and then failed. Who
    // just goes is not told of.
    std::function<void(const std::string& peer, const Status& why)> turned_away = nullptr;
  };
  // Returns the bound address.
  virtual Result<std::string> listen(const std::string& address, Acceptor acceptor) = 0;
  virtual void stop_listening() = 0;
  // Whether others than this host's processes reach `address`, as far as it tells.
  virtual bool is_open_to_hosts(const std::string& address) const = 0;

  // Client: connects and greets. `done` gets the connection and the peer's HelloReply bytes; a
  // refusal has no connection but its reply bytes. kUnavailable if nobody answers, kTimedOut past
  // `timeout_ms`.
  struct Connected {
    std::unique_ptr<Connection> connection;
    std::vector<std::byte> hello_reply;
  };
  virtual void connect(const std::string& address, std::vector<std::byte> hello,
                       std::uint32_t timeout_ms, std::function<void(Result<Connected>)> done) = 0;
};

}  // namespace precis
