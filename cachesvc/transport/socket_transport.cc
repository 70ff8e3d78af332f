#include "cachesvc/transport/socket_transport.h"

#include <pthread.h>

#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/thread_executor.h"
#include "cachesvc/net/address.h"
#include "cachesvc/net/control_stream.h"
#include "cachesvc/transport/acceptor.h"
#include "cachesvc/transport/pending_connections.h"
#include "cachesvc/transport/rdma_mover.h"
#include "cachesvc/transport/server_connection.h"
#include "precis/limits.h"

namespace precis {
namespace {

// A loop with its own thread, for bulk sockets.
class BulkLoop {
 public:
  explicit BulkLoop(unsigned index) : thread_([this] { loop.run(); }) {
    pthread_setname_np(thread_.native_handle(), ("bulk-" + std::to_string(index)).c_str());
  }
  ~BulkLoop() {
    loop.stop();
    thread_.join();
  }
  AsioLoop loop;

 private:
  std::thread thread_;
};

class SocketTransport final : public Transport, private PendingConnections::Host {
 public:
  SocketTransport(EventLoop& loop, const SocketOptions& options)
      : loop_(loop),
        options_(options),
        tls_(options.tls),
        rdma_(options.rdma),
        copiers_("copies", options.copy_threads),
        meter_(options.inbox_bytes_max) {
    loop_.spin_for(options.spin);
    for (unsigned i = 0; i < options.bulk_threads; ++i) {
      bulk_loops_.push_back(std::make_unique<BulkLoop>(i));
    }
  }

  ~SocketTransport() override {
    stop_listening();
    links_.end_all();
    bulk_loops_.clear();
  }

  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    if (!rdma_) return std::unique_ptr<Registration>(std::make_unique<PlainRegistration>(memory));
    auto known = rdma_->register_memory(memory, MemorySpace::kHost);
    if (!known.ok()) {
      return known.status().with_context(
          "rdma (raise the limit on locked memory, or set rdma = \"off\")");
    }
    return std::unique_ptr<Registration>(
        std::make_unique<RdmaRegistration>(memory, MemorySpace::kHost, std::move(*known)));
  }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    stop_listening();
    acceptor_ = std::move(acceptor);
    pending_ = std::make_unique<PendingConnections>(loop_, options_.greeting_timeout,
                                                    static_cast<PendingConnections::Host&>(*this));
    PRECIS_ASSIGN(tcp_, listen_tcp(loop_, address, [this](Descriptor socket) {
                    pending_->add(std::move(socket), tls_.get());
                  }));
    if (!options_.listen_unix.empty()) {
      std::error_code failed;
      const std::string path = std::filesystem::absolute(options_.listen_unix, failed).string();
      PRECIS_ASSIGN(unix_, listen_unix(loop_, path, [this](Descriptor socket) {
                      pending_->add(std::move(socket), nullptr);
                    }));
    }
    return tcp_->address();
  }

  void stop_listening() override {
    tcp_.reset();
    unix_.reset();
    // Destroyed in a later turn, because a callback of a pending connection may be running.
    if (pending_) {
      pending_->clear();
      loop_.post([old = std::shared_ptr<PendingConnections>(std::move(pending_))] {});
    }
  }

  bool is_open_to_hosts() const override { return tcp_ && !is_loopback(tcp_->address()); }
  bool is_encrypted() const override { return tls_ != nullptr; }
  void use_tls(std::shared_ptr<TlsContext> tls) override { tls_ = std::move(tls); }
  std::string rdma() const override { return rdma_ ? rdma_->description() : "off"; }

 private:
  Welcome greet(const PendingConnections::Peer& peer, const Socket& socket,
                const Hello& hello) override {
    Greeting greeting = acceptor_.greet({hello, peer.challenge, peer.name.text, peer.name.address});
    Welcome welcome;
    welcome.status = std::move(greeting.status);
    welcome.protocol_version = kProtocolVersion;
    welcome.server = std::move(greeting.server);
    if (!welcome.status.ok()) return welcome;
    welcome.keyed = !greeting.token.empty();
    welcome.connection = ++last_number_;
    welcome.secret = make_nonce();
    // The path is useful only to a client on this host.
    const bool near = socket.is_unix() || is_loopback(peer.name.text);
    if (unix_ && near) welcome.unix_path = unix_->address();
    // Only a client that has proved a token may use RDMA: its messages then reach UCX and the
    // hardware.
    welcome.rdma = rdma_ && welcome.keyed;
    welcome.clustered = greeting.clustered;
    welcome.proof = server_proof(greeting.token, peer.challenge, hello, welcome);
    next_key_ = bind_key(greeting.token, peer.challenge, hello, welcome);
    return welcome;
  }

  // Called right after greet() of the same peer.
  void admitted(const PendingConnections::Peer& peer, std::unique_ptr<Socket> socket,
                const Hello& hello, const Welcome& welcome) override {
    const std::string kind = socket->kind();
    auto link = std::make_unique<ServerConnection>(
        loop_, std::make_shared<ControlStream>(loop_, std::move(socket), &meter_),
        ServerConnection::Identity{peer.name.text, kind, next_key_},
        welcome.rdma ? rdma_ : nullptr);
    links_.add(welcome.connection, *link);
    acceptor_.accepted(std::move(link), hello);
  }

  // The refusal is the same for every error.
  Status may_bind(const PendingConnections::Peer& peer, const Bind& bind) override {
    const ServerConnection* const link = links_.find(bind.connection);
    const Proof wanted =
        bind_proof(link ? link->bind_key() : Proof{}, peer.challenge, bind.connection);
    if (link && !link->is_bound() && equal_in_constant_time(wanted, bind.proof)) return {};
    return Status::denied("no connection accepts this Bind");
  }

  void bound(std::unique_ptr<Socket> socket, const Bind& bind) override {
    EventLoop& bulk = bulk_loops_[next_bulk_loop_++ % bulk_loops_.size()]->loop;
    if (ServerConnection* const link = links_.find(bind.connection)) {
      link->bind(bulk, std::move(socket), copiers_);
    }
  }

  void refused(const PendingConnections::Peer& peer, const Status& why) override {
    if (acceptor_.refused) acceptor_.refused(peer.name.text, why);
  }

  EventLoop& loop_;
  const SocketOptions options_;
  std::shared_ptr<TlsContext> tls_;
  const std::shared_ptr<RdmaDevice> rdma_;  // shared with the links
  ThreadExecutor copiers_;
  InboxMeter meter_;
  std::vector<std::unique_ptr<BulkLoop>> bulk_loops_;
  std::size_t next_bulk_loop_ = 0;
  Acceptor acceptor_;
  std::unique_ptr<PendingConnections> pending_;
  std::unique_ptr<ListeningSocket> tcp_, unix_;
  Links<ServerConnection> links_;
  std::uint64_t last_number_ = 0;
  Proof next_key_{};
};

}  // namespace

std::unique_ptr<Transport> make_socket_transport(EventLoop& loop, const SocketOptions& options) {
  return std::make_unique<SocketTransport>(loop, options);
}

}  // namespace precis
