#include "cachesvc/embed/loopback.h"

#include <algorithm>
#include <mutex>

#include "cachesvc/embed/loopback_channel.h"
#include "cachesvc/transport/server_connection.h"
#include "client/src/transport/client_memory.h"
#include "client/src/transport/socket_client_connection.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr const char* kPeer = "this process";
constexpr const char* kKind = "loopback";

class LoopbackMemory final : public PeerMemory {
 public:
  explicit LoopbackMemory(RegionTable::Access access) : access_(std::move(access)) {}
  Bytes bytes() const override { return access_.bytes(); }

 private:
  const RegionTable::Access access_;
};

// Copies once between the memory of the two sides.
class LoopbackMover final : public Mover, public std::enable_shared_from_this<LoopbackMover> {
 public:
  // `client` is the loop of the other side.
  LoopbackMover(EventLoop& loop, const EventLoop& client, std::shared_ptr<RegionTable> table)
      : loop_(loop), may_hold_(&loop != &client), table_(std::move(table)) {}

  const char* name() const override { return ""; }  // the connection's kind names it
  bool supports(const Registration& local, const RemoteRegion& remote) const override {
    return local.space() == MemorySpace::kHost && remote.space == MemorySpace::kHost;
  }
  // One turn of the server's loop copies one chunk: about half a millisecond.
  BulkLimits limits() const override {
    return {.chunk_bytes = 4u << 20, .ranges_per_chunk = 64, .chunks_under_way = 1};
  }
  // Posted, so that other work runs between the chunks of a large transfer.
  void post(BulkChunk chunk, Ended ended) override {
    loop_.post([self = shared_from_this(), chunk = std::move(chunk), ended = std::move(ended)] {
      ended(self->copy(chunk));
    });
  }
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override {
    // If both sides had one loop, the client's wait for the release would block that loop.
    if (!may_hold_ || !canceled_.ok()) return nullptr;
    auto there = table_->access(region.id, 0, region.size_bytes);
    if (!there.ok()) return nullptr;
    return std::make_shared<LoopbackMemory>(std::move(*there));
  }
  void cancel(const Status& why) override {
    if (canceled_.ok()) canceled_ = why;
  }

 private:
  Status copy(const BulkChunk& chunk) {
    PRECIS_TRY(canceled_);
    PRECIS_ASSIGN(const auto there,
                  table_->access(chunk.transfer->remote().id, chunk.offset, chunk.size_bytes));
    copy_chunk(chunk, there.bytes());
    return {};
  }

  EventLoop& loop_;
  const bool may_hold_;
  const std::shared_ptr<RegionTable> table_;
  Status canceled_;
};

// greet() runs on the server's loop. Other threads only read `handle` and `address`.
struct Listener {
  EventLoop& loop;
  std::shared_ptr<LoopHandle> handle;
  std::shared_ptr<Links<ServerConnection>> links;
  Transport::Acceptor acceptor;
  std::string address;

  // Returns the answer to the client. OK joins the two channels.
  Welcome greet(const std::shared_ptr<LoopbackChannel>& client, const EventLoop& client_loop,
                const std::shared_ptr<RegionTable>& table, const Login& login) {
    const Nonce challenge = make_nonce();
    Hello hello{kProtocolVersion, login.client, login.tenant, make_nonce(), {}};
    hello.proof = client_proof(login.token, challenge, hello);
    const std::string peer = kPeer;
    Transport::Greeting greeting = acceptor.greet({hello, challenge, peer, peer});
    Welcome welcome;
    welcome.status = std::move(greeting.status);
    welcome.protocol_version = kProtocolVersion;
    welcome.server = std::move(greeting.server);
    welcome.clustered = greeting.clustered;
    if (!welcome.status.ok()) return welcome;
    auto server = std::make_shared<LoopbackChannel>(handle);
    LoopbackChannel::join(client, server);
    auto link = std::make_unique<ServerConnection>(loop, std::move(server),
                                                   ServerConnection::Identity{kPeer, kKind, {}});
    link->add(std::make_shared<LoopbackMover>(loop, client_loop, table));
    links->add(*link);
    acceptor.accepted(std::move(link), hello);
    return welcome;
  }
};

}  // namespace

class LoopbackNet {
 public:
  void set(std::shared_ptr<Listener> listener) {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }
  // Returns null if nobody listens at `address`.
  std::shared_ptr<Listener> find(const std::string& address) {
    const std::lock_guard lock(mutex_);
    return listener_ && listener_->address == address ? listener_ : nullptr;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Listener> listener_;
};

namespace {

class LoopbackServer final : public Transport {
 public:
  LoopbackServer(EventLoop& loop, std::shared_ptr<LoopbackNet> net)
      : loop_(loop), handle_(std::make_shared<LoopHandle>(loop)), net_(std::move(net)) {}
  ~LoopbackServer() override {
    stop_listening();
    links_->end_all();
    handle_->detach();
  }
  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<PlainRegistration>(memory));
  }
  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (!address.starts_with("loopback:")) {
      return Status::invalid("'" + address + "' is not of the form loopback:NAME");
    }
    net_->set(
        std::make_shared<Listener>(Listener{loop_, handle_, links_, std::move(acceptor), address}));
    return address;
  }
  void stop_listening() override { net_->set(nullptr); }
  bool is_open_to_hosts() const override { return false; }
  bool is_encrypted() const override { return false; }

 private:
  EventLoop& loop_;
  const std::shared_ptr<LoopHandle> handle_;  // shared with all objects that post to the loop
  const std::shared_ptr<LoopbackNet> net_;
  const std::shared_ptr<Links<ServerConnection>> links_ =
      std::make_shared<Links<ServerConnection>>();
};

// One connect() until its answer or its deadline. The callbacks of both share it.
struct Attempt {
  std::function<void(Result<ClientTransport::Connected>)> done;
  std::unique_ptr<EventLoop::Timer> deadline;
  void finish(Result<ClientTransport::Connected> result) {
    deadline.reset();
    if (const auto call = std::exchange(done, nullptr)) call(std::move(result));
  }
};

class LoopbackClient final : public ClientTransport {
 public:
  LoopbackClient(EventLoop& loop, std::shared_ptr<LoopbackNet> net)
      : loop_(loop), handle_(std::make_shared<LoopHandle>(loop)), net_(std::move(net)) {}
  ~LoopbackClient() override {
    links_->end_all();
    links_.reset();
    handle_->detach();
  }
  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<ClientMemory>(memory, nullptr));
  }
  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    PRECIS_ASSIGN(auto pages, Pages::make_private(std::max(size_bytes, Pages::kUnitBytes)));
    return std::unique_ptr<Registration>(std::make_unique<ClientMemory>(std::move(pages), nullptr));
  }

  void connect(const std::string& address, const Login& login, std::uint32_t timeout_ms,
               std::function<void(Result<Connected>)> done) override {
    auto attempt = std::make_shared<Attempt>();
    attempt->done = std::move(done);
    const auto listener = net_->find(address);
    if (!listener) {
      return handle_->post([attempt, address] {
        attempt->finish(Status::unavailable("nobody listens on '" + address + "'"));
      });
    }
    attempt->deadline = loop_.after(std::chrono::milliseconds(timeout_ms), [attempt, timeout_ms] {
      attempt->finish(Status::timed_out("no answer within " + std::to_string(timeout_ms) + " ms"));
    });
    auto mine = std::make_shared<LoopbackChannel>(handle_);
    auto regions = std::make_shared<ClientRegions>(loop_, nullptr);
    listener->handle->post([listener, mine, regions, &loop = loop_, handle = handle_,
                            links = std::weak_ptr(links_), attempt, login] {
      auto welcome = listener->greet(mine, loop, regions->table(), login);
      handle->post([mine, regions, &loop, links, attempt, welcome = std::move(welcome)] {
        const auto open = links.lock();
        if (!open) return;
        Connected connected{nullptr, welcome};
        if (welcome.status.ok()) {
          auto link = std::make_unique<SocketClientConnection>(loop, mine, regions, kKind);
          open->add(*link);
          connected.connection = std::move(link);
        }
        attempt->finish(std::move(connected));
      });
    });
  }

 private:
  EventLoop& loop_;
  const std::shared_ptr<LoopHandle> handle_;  // shared with all objects that post to the loop
  const std::shared_ptr<LoopbackNet> net_;
  std::shared_ptr<Links<SocketClientConnection>> links_ =
      std::make_shared<Links<SocketClientConnection>>();
};

}  // namespace

std::shared_ptr<LoopbackNet> make_loopback_net() { return std::make_shared<LoopbackNet>(); }

std::unique_ptr<Transport> make_loopback_server(EventLoop& loop, std::shared_ptr<LoopbackNet> net) {
  return std::make_unique<LoopbackServer>(loop, std::move(net));
}

std::unique_ptr<ClientTransport> make_loopback_client(EventLoop& loop,
                                                      std::shared_ptr<LoopbackNet> net) {
  return std::make_unique<LoopbackClient>(loop, std::move(net));
}

}  // namespace precis
