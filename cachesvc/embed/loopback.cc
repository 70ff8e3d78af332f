#include "cachesvc/embed/loopback.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_set>

#include "cachesvc/net/pages.h"
#include "cachesvc/net/region_table.h"
#include "cachesvc/transport/bulk_transfer.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr const char* kPeer = "this process";

// A chunk is copied in one turn of the server's loop: about half a millisecond.
constexpr BulkQueue::Limits kBulkLimits{
    .chunk_bytes = 4u << 20, .ranges_per_chunk = 64, .chunks_under_way = 1};

class LoopbackRegistration final : public Registration {
 public:
  explicit LoopbackRegistration(MutableBytes bytes) : bytes_(bytes) {}
  explicit LoopbackRegistration(std::unique_ptr<Pages> pages)
      : bytes_(pages->bytes()), pages_(std::move(pages)) {}
  MutableBytes bytes() const override { return bytes_; }

 private:
  MutableBytes bytes_;
  std::unique_ptr<Pages> pages_;  // where the memory is the transport's
};

class LoopbackExposure final : public Exposure {
 public:
  LoopbackExposure(std::shared_ptr<RegionTable> table, MutableBytes bytes)
      : table_(std::move(table)) {
    region_.id = table_->add(bytes);
    region_.size_bytes = bytes.size();
  }
  ~LoopbackExposure() override {
    table_->retire(region_.id);
    table_->wait_until_idle(region_.id);  // a chunk is copied, or somebody reads in place
    table_->remove(region_.id);
  }
  RemoteRegion region() const override { return region_; }

 private:
  std::shared_ptr<RegionTable> table_;
  RemoteRegion region_;
};

class LoopbackMemory final : public PeerMemory {
 public:
  explicit LoopbackMemory(RegionTable::Access access) : access_(std::move(access)) {}
  Bytes bytes() const override { return access_.bytes(); }

 private:
  RegionTable::Access access_;
};

// A loop that may go before those who post to it: gone once its transport is.
class LoopHandle {
 public:
  explicit LoopHandle(EventLoop& loop) : loop_(&loop) {}
  void post(std::function<void()> fn) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) loop_->post(std::move(fn));
  }
  void detach() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  EventLoop* loop_;
};

// One side of a link. Touched on its own loop only, but for what is marked. Shared by its
// Connection, by the tasks queued on its loop, and (weakly) by the other side.
class Side : public std::enable_shared_from_this<Side> {
 public:
  explicit Side(std::shared_ptr<LoopHandle> loop)
      : loop_(std::move(loop)), bulk_(kBulkLimits, [this](BulkChunk chunk, BulkQueue::Ended ended) {
          // On a later turn, so that a large transfer lets others in between.
          loop_->post([self = shared_from_this(), chunk = std::move(chunk),
                       ended = std::move(ended)] { ended(self->copy(chunk)); });
        }) {}

  static void join(const std::shared_ptr<Side>& a, const std::shared_ptr<Side>& b) {
    a->peer_ = b;
    b->peer_ = a;
  }

  void start(std::function<void(std::vector<std::byte>)> on_message,
             std::function<void(Status)> on_closed) {
    handlers_ = std::make_shared<Connection::Handlers>(
        Connection::Handlers{std::move(on_message), std::move(on_closed)});
    loop_->post([self = shared_from_this()] { self->deliver(); });
  }

  void send(std::vector<std::byte> message) {
    if (!ended_.ok()) return;
    if (message.size() > limits::kMessageBytesMax) {
      return fail(Status::invalid("this side's message of " + std::to_string(message.size()) +
                                  " B exceeds the limit of " +
                                  std::to_string(limits::kMessageBytesMax) + " B"));
    }
    const auto peer = peer_.lock();
    if (!peer) return;  // the news of its end is on the way
    if (peer->waiting_bytes_ += message.size(); peer->waiting_bytes_ > limits::kSendQueueBytesMax) {
      return fail(Status::rejected("the peer does not read: more than " +
                                   std::to_string(limits::kSendQueueBytesMax) + " B wait for it"));
    }
    peer->loop_->post([peer, message = std::move(message)]() mutable {
      peer->inbox_.push_back(std::move(message));
      peer->deliver();
    });
  }

  void bulk(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
            std::vector<MutableBytes> local, const Registration& registration, Completion done) {
    auto later = [loop = loop_, done = std::move(done)](Status status) {
      loop->post([done, status = std::move(status)] { done(status); });
    };
    auto transfer = BulkTransfer::make(kind, remote, offset, std::move(local), registration, later);
    if (!transfer.ok()) return later(transfer.status());
    bulk_.add(std::move(*transfer));
  }

  const std::shared_ptr<RegionTable>& regions() const { return regions_; }

  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) {
    const auto peer = peer_.lock();
    if (peer && peer->loop_ == loop_) return nullptr;  // it could never be waited for
    auto there = access(region, 0, region.size_bytes);
    if (!there.ok()) return nullptr;
    return std::make_shared<LoopbackMemory>(std::move(*there));
  }

  // The owner's own end of the link: the other side hears of it, this one does not.
  void close() {
    handlers_ = nullptr;
    shut();
  }

  // The end of the transport: both sides hear of it.
  void shut() {
    tell_peer(Status::unavailable("the peer closed the connection"));
    end(Status::canceled("the connection was closed on this side"));
  }

 private:
  // The link broke: both sides hear why.
  void fail(const Status& reason) {
    tell_peer(reason);
    end(reason);
  }

  void tell_peer(const Status& reason) {
    const auto peer = ended_.ok() ? peer_.lock() : nullptr;
    if (peer) peer->loop_->post([peer, reason] { peer->end(reason); });
  }

  void end(const Status& reason) {
    if (!ended_.ok()) return;
    ended_ = reason;
    bulk_.fail(reason);
    loop_->post([self = shared_from_this()] { self->deliver(); });
  }

  // Hands out what may be handed out, always on a turn of its own: a handler may end the link or
  // destroy its Connection.
  void deliver() {
    while (handlers_ && !inbox_.empty()) {
      auto message = std::move(inbox_.front());
      inbox_.pop_front();
      waiting_bytes_ -= message.size();
      const auto handlers = handlers_;
      handlers->on_message(std::move(message));
    }
    if (ended_.ok()) return;
    if (const auto handlers = std::exchange(handlers_, nullptr)) handlers->on_closed(ended_);
  }

  Result<RegionTable::Access> access(const RemoteRegion& region, std::uint64_t offset,
                                     std::uint64_t size_bytes) {
    const auto peer = peer_.lock();
    if (!ended_.ok()) return ended_;
    if (!peer) return Status::unavailable("the peer is gone");
    return peer->regions_->access(region.id, offset, size_bytes);
  }

  Status copy(const BulkChunk& chunk) {
    PRECIS_ASSIGN(const auto there,
                  access(chunk.transfer->remote(), chunk.offset, chunk.size_bytes));
    copy_chunk(chunk, there.bytes());
    return {};
  }

  const std::shared_ptr<LoopHandle> loop_;
  const std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>();
  std::weak_ptr<Side> peer_;
  std::shared_ptr<Connection::Handlers> handlers_;
  std::deque<std::vector<std::byte>> inbox_;
  std::atomic<std::size_t> waiting_bytes_{0};  // sent to this side and not yet handed out
  BulkQueue bulk_;
  Status ended_;  // why the link is over for this side; OK while it is not
};

class ServerEnd final : public Connection {
 public:
  explicit ServerEnd(std::shared_ptr<Side> side) : side_(std::move(side)) {}
  ~ServerEnd() override { side_->close(); }

  void start(Handlers handlers) override {
    side_->start(std::move(handlers.on_message), std::move(handlers.on_closed));
  }
  void send(std::vector<std::byte> message) override { side_->send(std::move(message)); }
  void close() override { side_->close(); }
  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
            const Registration& local, Completion done) override {
    side_->bulk(BulkTransfer::Kind::kPull, from, offset, {into}, local, std::move(done));
  }
  void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
            std::uint64_t offset, Completion done) override {
    side_->bulk(BulkTransfer::Kind::kPush, to, offset, as_local(from), local, std::move(done));
  }
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override {
    return side_->read_in_place(region);
  }
  std::string description() const override { return "loopback"; }
  std::string peer() const override { return kPeer; }

 private:
  const std::shared_ptr<Side> side_;
};

class ClientEnd final : public ClientConnection {
 public:
  explicit ClientEnd(std::shared_ptr<Side> side) : side_(std::move(side)) {}
  ~ClientEnd() override { side_->close(); }

  void start(Handlers handlers) override {
    side_->start(std::move(handlers.on_message), std::move(handlers.on_closed));
  }
  void send(std::vector<std::byte> message) override { side_->send(std::move(message)); }
  void close() override { side_->close(); }
  Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                           MutableBytes memory) override {
    PRECIS_TRY(check_part(memory, registration.bytes()));
    return std::unique_ptr<Exposure>(std::make_unique<LoopbackExposure>(side_->regions(), memory));
  }
  std::string description() const override { return "loopback"; }

 private:
  const std::shared_ptr<Side> side_;
};

// The open sides of one transport, which closes them when it goes. Touched on its loop only; shared
// with its Listener.
using Sides = std::vector<std::weak_ptr<Side>>;

struct Listener {
  std::shared_ptr<LoopHandle> loop;
  std::shared_ptr<Sides> sides;
  Transport::Acceptor acceptor;
};

std::shared_ptr<Side> make_side(const std::shared_ptr<LoopHandle>& loop, Sides& sides) {
  auto side = std::make_shared<Side>(loop);
  std::erase_if(sides, [](const auto& old) { return old.expired(); });
  sides.push_back(side);
  return side;
}

}  // namespace

class LoopbackNet {
 public:
  Status add(const std::string& name, std::shared_ptr<Listener> listener) {
    const std::lock_guard lock(mutex_);
    if (listeners_.try_emplace(name, std::move(listener)).second) return {};
    return Status::invalid("'" + name + "' is listened on already");
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    listeners_.erase(name);
  }
  std::shared_ptr<Listener> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(name);
    return found == listeners_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;
};

namespace {

// One connect() until it is answered or too late; shared by the two.
struct Attempt {
  std::function<void(Result<ClientTransport::Connected>)> done;
  std::unique_ptr<EventLoop::Timer> deadline;
  void finish(Result<ClientTransport::Connected> result) {
    const auto timer = std::move(deadline);
    if (const auto call = std::exchange(done, nullptr)) call(std::move(result));
  }
};

void shut_all(Sides& sides) {
  for (const auto& side : std::exchange(sides, {})) {
    if (const auto open = side.lock()) open->shut();
  }
}

class LoopbackServer final : public Transport {
 public:
  LoopbackServer(EventLoop& loop, std::shared_ptr<LoopbackNet> net)
      : handle_(std::make_shared<LoopHandle>(loop)), net_(std::move(net)) {}
  ~LoopbackServer() override {
    stop_listening();
    shut_all(*sides_);
    handle_->detach();
  }
  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<LoopbackRegistration>(memory));
  }
  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    if (!address.starts_with("loopback:")) {
      return Status::invalid("'" + address + "' is not of the form loopback:NAME");
    }
    stop_listening();
    PRECIS_TRY(net_->add(
        address, std::make_shared<Listener>(Listener{handle_, sides_, std::move(acceptor)})));
    listening_ = address;
    return address;
  }
  void stop_listening() override {
    if (!listening_.empty()) net_->remove(std::exchange(listening_, {}));
  }
  bool is_open_to_hosts() const override { return false; }
  bool is_encrypted() const override { return false; }

 private:
  const std::shared_ptr<LoopHandle> handle_;  // shared with all who post to the loop
  const std::shared_ptr<LoopbackNet> net_;
  const std::shared_ptr<Sides> sides_ = std::make_shared<Sides>();
  std::string listening_;
};

class LoopbackClient final : public ClientTransport {
 public:
  LoopbackClient(EventLoop& loop, std::shared_ptr<LoopbackNet> net)
      : loop_(loop), handle_(std::make_shared<LoopHandle>(loop)), net_(std::move(net)) {}
  ~LoopbackClient() override {
    shut_all(*sides_);
    handle_->detach();
  }
  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<LoopbackRegistration>(memory));
  }
  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    PRECIS_ASSIGN(auto pages, Pages::make_private(std::max(size_bytes, Pages::kUnitBytes)));
    return std::unique_ptr<Registration>(std::make_unique<LoopbackRegistration>(std::move(pages)));
  }

  void connect(const std::string& address, const Login& login, std::uint32_t timeout_ms,
               std::function<void(Result<Connected>)> done) override {
    // Shared by the deadline and the answer, whichever comes first.
    auto attempt = std::make_shared<Attempt>();
    attempt->done = std::move(done);
    const auto listener = net_->find(address);
    if (!listener) {
      auto refuse = [attempt, address] {
        attempt->finish(Status::unavailable("nobody listens on '" + address + "'"));
      };
      return handle_->post(std::move(refuse));
    }
    attempt->deadline = loop_.after(std::chrono::milliseconds(timeout_ms), [attempt, timeout_ms] {
      attempt->finish(Status::timed_out("no answer within " + std::to_string(timeout_ms) + " ms"));
    });
    auto mine = make_side(handle_, *sides_);
    listener->loop->post([listener, mine, loop = handle_, attempt, login] {
      Connected answer = greet(*listener, mine, login);
      auto reply = [attempt, answer = std::make_shared<Connected>(std::move(answer))] {
        attempt->finish(std::move(*answer));
      };
      loop->post(std::move(reply));
    });
  }

 private:
  // On the listener's loop.
  static Connected greet(const Listener& listener, const std::shared_ptr<Side>& client,
                         const Login& login) {
    const Nonce challenge = make_nonce();
    Hello hello{kProtocolVersion, login.client, login.tenant, make_nonce(), {}};
    hello.proof = client_proof(login.token, challenge, hello);
    const std::string peer = kPeer;
    Transport::Greeting greeting = listener.acceptor.greet({hello, challenge, peer, peer});
    Connected answer;
    answer.welcome.status = std::move(greeting.status);
    answer.welcome.protocol_version = kProtocolVersion;
    answer.welcome.server = std::move(greeting.server);
    if (!answer.welcome.status.ok()) return answer;
    auto server = make_side(listener.loop, *listener.sides);
    Side::join(client, server);
    answer.connection = std::make_unique<ClientEnd>(client);
    listener.acceptor.accepted(std::make_unique<ServerEnd>(server), hello);
    return answer;
  }

  EventLoop& loop_;
  const std::shared_ptr<LoopHandle> handle_;  // shared with all who post to the loop
  const std::shared_ptr<LoopbackNet> net_;
  const std::shared_ptr<Sides> sides_ = std::make_shared<Sides>();
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
