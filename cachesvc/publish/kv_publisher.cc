#include "cachesvc/publish/kv_publisher.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
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
constexpr int kTopicsWaitingMax = 16;             // of each subscriber
// The most that the topics of all subscribers may take. A topic counts as its bytes and kTopicBytes
// more. The library keeps a topic in about 32 times its size until its subscriber leaves. It can
// neither refuse one (ZMQ_XPUB_MANUAL only does not match it) nor close one connection, so at this
// bound all are closed. An honest subscriber connects again, and asks for one or a few short
// topics.
constexpr std::size_t kTopicsBytesMax = 1u << 20, kTopicBytes = 64;
constexpr std::chrono::seconds kOpenAgain{1};  // after an attempt that failed

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
        clock(runtime.clock()),
        thread(runtime.make_executor("kv-events", 1)) {}
  ~Impl() {
    thread.reset();  // it uses the socket
    close();
  }

  // Makes the socket, and binds it.
  Status open(const std::string& to);
  Status bind(std::string to);
  // Afterwards the address is free again.
  void close();
  void publish(const std::string& tenant, std::uint64_t number, const msg::KvEvent& event);
  // Counts what subscribers ask for and give up. Past the bound it closes the socket.
  void take_topics();
  // Opens a closed socket again, if it is time for that. Another program may have taken the
  // address.
  void open_again();

  const std::string topic;
  const Clock& clock;
  std::string address;
  // After the first open() only used by the thread.
  void* context = nullptr;
  void* socket = nullptr;
  std::size_t topics_bytes = 0;
  Clock::Time next_open{};
  bool fails = false;                          // the last attempt to open it again
  Log* log = nullptr;                          // null until serve()
  std::atomic<std::size_t> waiting_bytes = 0;  // of events that wait for the thread
  std::unique_ptr<Executor> thread;
};

Status KvPublisher::Impl::open(const std::string& to) {
  context = zmq_ctx_new();
  socket = zmq_socket(context, ZMQ_XPUB);
  const Status status = socket == nullptr ? failure("a socket") : bind(to);
  if (!status.ok()) close();
  return status;
}

void KvPublisher::Impl::close() {
  if (socket != nullptr) zmq_close(std::exchange(socket, nullptr));
  if (context != nullptr) zmq_ctx_term(std::exchange(context, nullptr));  // waits for the end
  topics_bytes = 0;
}

Status KvPublisher::Impl::bind(std::string to) {
  const int messages = limits::kKvMessagesMax, linger_ms = 0, tell_all = 1;
  zmq_setsockopt(socket, ZMQ_SNDHWM, &messages, sizeof messages);
  zmq_setsockopt(socket, ZMQ_RCVHWM, &kTopicsWaitingMax, sizeof kTopicsWaitingMax);
  zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &kReceivedBytesMax, sizeof kReceivedBytesMax);
  zmq_setsockopt(socket, ZMQ_XPUB_VERBOSER, &tell_all, sizeof tell_all);
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

// A message is a 1 or a 0, for a topic that is asked for or given up, and the topic.
void KvPublisher::Impl::take_topics() {
  std::array<char, kReceivedBytesMax> asked{};
  int size = 0;
  while (topics_bytes < kTopicsBytesMax &&
         (size = zmq_recv(socket, asked.data(), asked.size(), ZMQ_DONTWAIT)) >= 0) {
    const std::size_t bytes = static_cast<std::size_t>(size) + kTopicBytes;
    topics_bytes =
        asked[0] == 0 ? topics_bytes - std::min(topics_bytes, bytes) : topics_bytes + bytes;
  }
  if (topics_bytes < kTopicsBytesMax) return;
  log->warn("subscribers of KV events have asked for too many topics: all were disconnected",
            {{"address", address}, {"limit_bytes", kTopicsBytesMax}});
  close();
  next_open = {};
}

void KvPublisher::Impl::open_again() {
  if (clock.now() < next_open) return;
  const Status opened = open(address);
  if (!opened.ok()) next_open = clock.now() + kOpenAgain;
  if (fails == opened.ok()) {
    log->warn(opened.ok() ? "KV events are published again"
                          : "KV events are not published until their address is free",
              {{"address", address}, {"status", opened.message()}});
  }
  fails = !opened.ok();
}

// Sending waits for nobody: a subscriber that is too slow misses messages, and sees a gap.
void KvPublisher::Impl::publish(const std::string& tenant, std::uint64_t number,
                                const msg::KvEvent& event) {
  const std::string name = topic + tenant;
  const std::array<char, 8> numbered = big_endian(number);
  const std::string message = kv_message(event);
  if (message.size() > limits::kKvMessageBytesMax) return;
  if (socket != nullptr) take_topics();
  if (socket == nullptr) open_again();
  if (socket == nullptr) return;
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
  PRECIS_TRY(impl->open(config.kv_events));
  return std::unique_ptr<KvPublisher>(new KvPublisher(std::move(impl)));
}

KvPublisher::KvPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvPublisher::~KvPublisher() = default;
const std::string& KvPublisher::address() const { return impl_->address; }

void KvPublisher::serve(Service& service) {
  impl_->log = &service.operators().log();
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
