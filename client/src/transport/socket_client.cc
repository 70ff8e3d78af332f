#include "client/src/transport/socket_client.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <utility>

#include "client/src/transport/client_link.h"
#include "client/src/transport/login_attempt.h"

namespace precis {
namespace {

// kWindowBuffer is the first.
std::atomic<std::uint64_t> last_buffer_id{kWindowBuffer};

// Memory that a client moves bytes from and to: the caller's, or pages of the transport's own.
class ClientMemory final : public Registration {
 public:
  ClientMemory(MutableBytes bytes, std::shared_ptr<RdmaDevice> device)
      : bytes_(bytes), rdma_(std::move(device), bytes) {}
  ClientMemory(std::unique_ptr<Pages> pages, std::shared_ptr<RdmaDevice> device)
      : bytes_(pages->bytes()),
        pages_(std::move(pages)),
        buffer_(++last_buffer_id),
        rdma_(std::move(device), bytes_) {}
  ~ClientMemory() override {
    for (const auto& told : told_) {
      if (const auto link = told.lock()) link->unshare(buffer_);
    }
  }
  MutableBytes bytes() const override { return bytes_; }

  // Where `part` lies in memory that the link's server has mapped, or reaches by RDMA: `buffer` 0
  // and `key` empty if it has not.
  void locate(const std::shared_ptr<ClientLink>& link, MutableBytes part, RemoteRegion& region) {
    if (link->rdma() != nullptr) {
      region.key = rdma_.key();
      region.address = reinterpret_cast<std::uintptr_t>(part.data());
      return;
    }
    if (!pages_ || !link->share(buffer_, *pages_)) return;
    region.buffer = buffer_;
    region.buffer_offset = static_cast<std::uint64_t>(part.data() - bytes_.data());
    const std::lock_guard lock(mutex_);
    std::erase_if(told_, [](const auto& told) { return told.expired(); });
    const bool known = std::any_of(told_.begin(), told_.end(),
                                   [&](const auto& told) { return told.lock() == link; });
    if (!known) told_.push_back(link);
  }

 private:
  const MutableBytes bytes_;
  const std::unique_ptr<Pages> pages_;
  const std::uint64_t buffer_ = 0;
  RdmaRegistered rdma_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<ClientLink>> told_;  // guarded by mutex_
};

class SocketExposure final : public Exposure {
 public:
  SocketExposure(std::shared_ptr<ClientLink> link, ClientMemory& memory, MutableBytes part)
      : link_(std::move(link)) {
    region_.id = link_->regions()->add(part);
    region_.size_bytes = part.size();
    memory.locate(link_, part, region_);
    if (region_.buffer == 0 && region_.key.empty()) return;
    if (link_->claim_slot(region_.id, region_.slot) != nullptr) {
      has_slot_ = true;
    } else {
      region_.buffer = 0;
      region_.key.clear();
    }
  }
  ~SocketExposure() override {
    link_->regions()->retire(region_.id);
    if (has_slot_) link_->release_slot(region_.slot);
    // One call to the kernel may be under way on another thread.
    link_->regions()->wait_until_idle(region_.id);
    link_->regions()->remove(region_.id);
  }
  RemoteRegion region() const override { return region_; }

 private:
  const std::shared_ptr<ClientLink> link_;
  RemoteRegion region_;
  bool has_slot_ = false;
};

class SocketConnection final : public ClientConnection {
 public:
  explicit SocketConnection(std::shared_ptr<ClientLink> link) : link_(std::move(link)) {}
  ~SocketConnection() override { link_->close(); }
  void start(Handlers handlers) override { link_->start(std::move(handlers)); }
  void send(std::vector<std::byte> message) override { link_->send(std::move(message)); }
  void close() override { link_->close(); }
  Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                           MutableBytes memory) override {
    const MutableBytes all = registration.bytes();
    const std::less_equal<const std::byte*> le;
    if (!memory.empty() && !(le(all.data(), memory.data()) &&
                             le(memory.data() + memory.size(), all.data() + all.size()))) {
      return Status::invalid("a range of " + std::to_string(memory.size()) +
                             " B is outside its registration of " + std::to_string(all.size()) +
                             " B");
    }
    return std::unique_ptr<Exposure>(
        std::make_unique<SocketExposure>(link_, static_cast<ClientMemory&>(registration), memory));
  }
  std::string description() const override { return link_->description(); }

 private:
  const std::shared_ptr<ClientLink> link_;
};

class SocketClient final : public ClientTransport {
 public:
  SocketClient(EventLoop& loop, const SocketClientOptions& options)
      : loop_(loop), options_(options) {
    loop_.spin_for(options.spin);
  }
  ~SocketClient() override {
    attempts_.clear();
    for (const auto& weak : std::exchange(links_, {})) {
      if (const auto link = weak.lock()) {
        link->end(Status::canceled("the transport was closed on this side"));
      }
    }
  }

  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<ClientMemory>(memory, options_.rdma));
  }

  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    auto pages = options_.share_memory ? Pages::make_shared(std::max(size_bytes, Pages::kUnitBytes))
                                       : Pages::make_private(size_bytes);
    if (pages.status().code() == StatusCode::kUnsupported) pages = Pages::make_private(size_bytes);
    PRECIS_TRY(pages.status());
    return std::unique_ptr<Registration>(
        std::make_unique<ClientMemory>(std::move(*pages), options_.rdma));
  }

  void connect(const std::string& address, const Login& login, std::uint32_t timeout_ms,
               std::function<void(Result<Connected>)> done) override {
    const auto place = attempts_.emplace(attempts_.end());
    *place = std::make_unique<LoginAttempt>(
        loop_,
        LoginAttempt::Options{address, login, timeout_ms, options_.tls.get(),
                              options_.share_memory},
        [this, place, done = std::move(done)](Result<LoginAttempt::Admitted> admitted) {
          const auto over = std::move(*place);  // lives until the end of its own call
          attempts_.erase(place);
          done(connected(std::move(admitted)));
        });
  }

 private:
  Result<Connected> connected(Result<LoginAttempt::Admitted> admitted) {
    PRECIS_TRY(admitted.status());
    Connected result;
    result.welcome = std::move(admitted->welcome);
    if (!result.welcome.status.ok()) return result;
    const bool is_unix = admitted->data->is_unix();
    auto link = std::make_shared<ClientLink>(
        loop_, std::make_shared<ControlStream>(loop_, std::move(admitted->control)),
        std::move(admitted->data));
    // On one host memory is shared instead.
    const bool is_apart = options_.rdma && result.welcome.rdma && !is_unix;
    link->open(is_apart ? ClientRdma::make(options_.rdma) : nullptr);
    std::erase_if(links_, [](const auto& old) { return old.expired(); });
    links_.push_back(link);
    result.connection = std::make_unique<SocketConnection>(std::move(link));
    return result;
  }

  EventLoop& loop_;
  const SocketClientOptions options_;
  std::list<std::unique_ptr<LoginAttempt>> attempts_;
  std::vector<std::weak_ptr<ClientLink>> links_;
};

}  // namespace

std::unique_ptr<ClientTransport> make_socket_client(EventLoop& loop,
                                                    const SocketClientOptions& options) {
  return std::make_unique<SocketClient>(loop, options);
}

}  // namespace precis
