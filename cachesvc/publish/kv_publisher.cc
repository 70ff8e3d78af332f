#include "cachesvc/publish/kv_publisher.h"

#include <zmq.h>

#include <array>
#include <atomic>
#include <string_view>
#include <utility>

#include "cachesvc/net/address.h"
#include "cachesvc/publish/kv_message.h"
#include "cachesvc/server/operator_access.h"
#include "precis/limits.h"

namespace precis::publish {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::int64_t kReceivedBytesMax = 1024;  // a topic and a tenant's name

Status failure(const std::string& what) {
  return Status::unavailable("kv_events: " + what + ": " + zmq_strerror(zmq_errno()));
}

std::array<char, 8> big_endian(std::uint64_t number) {
  std::array<char, 8> bytes;
  for (char& byte : bytes) {
    byte = static_cast<char>(number >> 56);
    number <<= 8;
  }
  return bytes;
}

}  // namespace

struct KvPublisher::Impl {
  Impl(const Config& config, Runtime& runtime)
      : topic(config.kv_events_topic),
        context(zmq_ctx_new()),
        socket(zmq_socket(context, ZMQ_PUB)),
        thread(runtime.make_executor("kv-events", 1)) {}
  ~Impl() {
    thread.reset();  // it uses the socket
    if (socket != nullptr) zmq_close(socket);
    zmq_ctx_term(context);
  }

  Status bind(std::string address);
  void publish(const std::string& tenant, std::uint64_t number, const msg::KvEvent& event);

  const std::string topic;
  std::string address;
  void* const context;
  void* const socket;                          // after bind() only used by the thread
  std::atomic<std::size_t> waiting_bytes = 0;  // of events that wait for the thread
  std::unique_ptr<Executor> thread;
};

Status KvPublisher::Impl::bind(std::string to) {
  if (socket == nullptr) return failure("a socket");
  const int messages = limits::kKvMessagesMax, linger_ms = 0;
  zmq_setsockopt(socket, ZMQ_SNDHWM, &messages, sizeof messages);
  zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
  // A subscriber sends the beginnings of topics, which take about 32 times their size in memory.
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &kReceivedBytesMax, sizeof kReceivedBytesMax);
  const int ipv6 = to.find('[') != to.npos ? 1 : 0;
  zmq_setsockopt(socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
  if (to.ends_with(":0")) to.back() = '*';
  if (zmq_bind(socket, to.c_str()) != 0) return failure(to);
  std::array<char, 256> bound{};
  std::size_t size = bound.size();
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0) return failure(to);
  address = bound.data();
  return {};
}

// Sending waits for nobody: a subscriber that is too slow misses messages, and sees a gap.
void KvPublisher::Impl::publish(const std::string& tenant, std::uint64_t number,
                                const msg::KvEvent& event) {
  const std::string name = topic + tenant;
  const std::array<char, 8> numbered = big_endian(number);
  const std::string message = kv_message(event);
  if (message.size() > limits::kKvMessageBytesMax) return;
  zmq_send(socket, name.data(), name.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  zmq_send(socket, numbered.data(), numbered.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  zmq_send(socket, message.data(), message.size(), ZMQ_DONTWAIT);
}

Status check_config(const Config& config) {
  if (config.kv_events.empty()) return {};
  const std::string where = config.origin("kv_events") + "kv_events";
  if (!config.kv_events.starts_with(kTcp)) {
    return Status::invalid(where + " is '" + config.kv_events +
                           "', must be an address such as tcp://127.0.0.1:5557");
  }
  const std::string address = config.kv_events.substr(kTcp.size());
  PRECIS_TRY(split_address(address).status().with_context(where));
  if (is_loopback(address) || config.kv_events_access == "network") return {};
  return Status::invalid(where + " is '" + config.kv_events +
                         "', where other hosts could read the events of every tenant without a "
                         "token: use a loopback address, or set kv_events_access = \"network\"");
}

Result<std::unique_ptr<KvPublisher>> KvPublisher::start(const Config& config, Runtime& runtime) {
  PRECIS_TRY(check_config(config));
  auto impl = std::make_unique<Impl>(config, runtime);
  PRECIS_TRY(impl->bind(config.kv_events));
  return std::unique_ptr<KvPublisher>(new KvPublisher(std::move(impl)));
}

KvPublisher::KvPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvPublisher::~KvPublisher() = default;
const std::string& KvPublisher::address() const { return impl_->address; }

void KvPublisher::serve(Service& service) {
  service.operators().on_event([impl = impl_.get()](const std::string& tenant, std::uint64_t number,
                                                    std::shared_ptr<const msg::KvEvent> event) {
    const std::size_t size = sizeof *event + event->blocks.size() * sizeof(Digest);
    // A thread that does not keep up must not collect events without end.
    if (impl->waiting_bytes + size > limits::kEventBytesMax) return;
    impl->waiting_bytes += size;
    impl->thread->post([impl, tenant, number, event = std::move(event), size] {
      impl->publish(tenant, number, *event);
      impl->waiting_bytes -= size;
    });
  });
}

}  // namespace precis::publish
