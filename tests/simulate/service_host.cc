#include "tests/simulate/service_host.h"

#include <chrono>
#include <utility>

#include "cachesvc/store/joined_store.h"
#include "client/src/attach.h"
#include "tests/unit/store/forwarding_store.h"

namespace precis::simulate {
namespace {

constexpr const char* kAddress = "loopback:simulated";
constexpr std::uint64_t kWriteBehindBytes = 1u << 20;

// The loop of a client, the thread of the loop, and its transport.
class ClientHost {
 public:
  ClientHost(Simulation& machine, std::shared_ptr<LoopbackNet> net)
      : machine_(machine),
        loop(machine.make_loop()),
        transport(make_loopback_client(*loop, std::move(net))) {
    machine.start("client's loop", [this] {
      loop->run();
      ended_ = true;
    });
  }
  ~ClientHost() {
    loop->stop();
    machine_.wait([this] { return ended_; });
  }
  ClientHost(const ClientHost&) = delete;
  ClientHost& operator=(const ClientHost&) = delete;

 private:
  Simulation& machine_;
  bool ended_ = false;

 public:
  const std::unique_ptr<EventLoop> loop;
  const std::unique_ptr<ClientTransport> transport;
};

}  // namespace

// A transport whose connections can be cut all at once.
class ServiceHost::CutTransport final : public Transport {
 public:
  explicit CutTransport(std::unique_ptr<Transport> net) : net_(std::move(net)) {}
  void cut() { net_.reset(); }
  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return net_->register_memory(memory);
  }
  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    return net_->listen(address, std::move(acceptor));
  }
  void stop_listening() override {
    if (net_) net_->stop_listening();
  }
  bool is_open_to_hosts() const override { return false; }
  bool is_encrypted() const override { return false; }

 private:
  std::unique_ptr<Transport> net_;
};

ServiceHost::ServiceHost(Simulation& machine, std::string folder, std::uint64_t max_disk_bytes)
    : machine_(machine), folder_(std::move(folder)), max_disk_bytes_(max_disk_bytes) {}

ServiceHost::~ServiceHost() {
  if (service_) stop();
}

Status ServiceHost::start() {
  Config config;
  config.data_dir = folder_;
  config.listen = kAddress;
  config.log_level = "off";
  config.memory_bytes = 16u << 20;
  config.max_disk_bytes = max_disk_bytes_;
  config.compute_threads = 1;
  config.consolidate_links = 2;
  config.device = "cpu";
  const auto make_transport = [this](EventLoop& loop) -> Result<std::unique_ptr<Transport>> {
    auto made = std::make_unique<CutTransport>(make_loopback_server(loop, net_));
    transport_ = made.get();
    return std::unique_ptr<Transport>(std::move(made));
  };
  const auto open_store = [this](const std::string&, const ExtentStoreOptions& options) {
    const OpenPayload open_payload = [this](std::span<const Extent> live) {
      return std::unique_ptr<PayloadStore>(std::make_unique<testing::MemoryPayload>(
          *values_, live, machine_.make_executor("payload", 1)));
    };
    return join_store(
        std::make_unique<testing::ForwardingRows>(*rows_), open_payload, kWriteBehindBytes,
        {machine_.make_executor("compactor", 1), machine_.clock(), options.tidy_after});
  };
  PRECIS_ASSIGN(service_, Service::create(config, machine_, make_transport, open_store));
  ended_ = false;
  machine_.start("service", [this, service = service_.get()] {
    service->run();
    ended_ = true;
  });
  return {};
}

void ServiceHost::end_service() {
  service_->stop();
  machine_.wait([this] { return ended_; });
  service_.reset();
}

void ServiceHost::stop() { end_service(); }

void ServiceHost::crash(Crash how) {
  ++crashes_;
  std::optional<std::size_t> logged;
  if (how == Crash::kPower) {
    ++power_losses_;
    logged = machine_.random(rows_->unsynced() + 1);
  }
  // The old process ends in order, but it reaches no client, and nobody reads its disk any more.
  auto rows = std::exchange(rows_, rows_->after_crash(logged));
  auto values = std::exchange(values_, values_->copy());
  transport_->cut();
  end_service();
}

Result<std::shared_ptr<Client>> ServiceHost::connect(std::uint32_t deadline_ms) {
  auto host = std::make_shared<ClientHost>(machine_, net_);
  ConnectOptions options;
  options.deadline_ms = deadline_ms;
  EventLoop& loop = *host->loop;
  ClientTransport& transport = *host->transport;
  return attach(std::move(host), machine_, loop, transport, kAddress, options);
}

}  // namespace precis::simulate
