#include "tests/unit/transport/party.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cachesvc/transport/loopback_transport.h"

namespace precis::test {

const char* wire_name(Wire wire) {
  switch (wire) {
    case Wire::kLoopback: return "loopback";
    case Wire::kHostCopy: return "UCX, host copy";
    case Wire::kTcpMessages: return "UCX tcp, messages";
    case Wire::kTcpStream: return "UCX tcp, stream";
    case Wire::kTcpOneSided: return "UCX tcp, one-sided";
  }
  return "";
}

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t eight = random();
    std::memcpy(bytes.data() + at, &eight, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Connection::Handlers Inbox::handlers() {
  return {.on_message =
              [this](std::vector<std::byte> message) {
                const std::lock_guard lock(mutex_);
                messages_.push_back(std::move(message));
                changed_.notify_all();
              },
          .on_closed =
              [this](Status reason) {
                const std::lock_guard lock(mutex_);
                closed_.push_back(std::move(reason));
                changed_.notify_all();
              }};
}

void Inbox::wait(const std::function<bool()>& until) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, until)) throw std::runtime_error("waited in vain");
}

std::vector<std::vector<std::byte>> Inbox::wait_messages(std::size_t count) {
  wait([&] { return messages_.size() >= count; });
  const std::lock_guard lock(mutex_);
  return messages_;
}

Status Inbox::wait_closed() {
  wait([&] { return !closed_.empty(); });
  const std::lock_guard lock(mutex_);
  return closed_.front();
}

std::size_t Inbox::closed_count() {
  const std::lock_guard lock(mutex_);
  return closed_.size();
}

std::size_t Inbox::message_count() {
  const std::lock_guard lock(mutex_);
  return messages_.size();
}

UcxOptions ucx_options(Wire wire) {
  using Mode = UcxOptions::BulkMode;
  UcxOptions options;
  options.transports = "tcp";
  options.bulk = wire == Wire::kHostCopy      ? Mode::kHostCopy
                 : wire == Wire::kTcpOneSided ? Mode::kOneSided
                 : wire == Wire::kTcpStream   ? Mode::kStream
                                              : Mode::kMessages;
  return options;
}

Party::Party(Wire wire, std::shared_ptr<LoopbackNet> net,
             std::chrono::milliseconds preface_timeout) {
  transport = thread.on_loop([&]() -> std::unique_ptr<Transport> {
    if (wire == Wire::kLoopback) {
      return make_loopback_transport(thread.loop, net);
    }
    UcxOptions options = ucx_options(wire);
    options.preface_timeout = preface_timeout;
    return make_ucx_transport(thread.loop, options).value();
  });
}

Party::Party(const UcxOptions& options) {
  transport = thread.on_loop([&] { return make_ucx_transport(thread.loop, options).value(); });
}

Party::~Party() {
  thread.on_loop([this] { transport.reset(); });
}

std::unique_ptr<Registration> Party::register_memory(MutableBytes memory) {
  return transport->register_memory(memory).value();
}

std::string listen(Party& party, Wire wire, Transport::Acceptor acceptor) {
  return party.thread.on_loop([&] {
    const char* address = wire == Wire::kLoopback ? "loopback:test" : "127.0.0.1:0";
    return party.transport->listen(address, std::move(acceptor)).value();
  });
}

Result<Transport::Connected> connect(Party& party, const std::string& address,
                                     std::vector<std::byte> hello, std::uint32_t timeout_ms) {
  auto promise = std::make_shared<std::promise<Result<Transport::Connected>>>();
  auto future = promise->get_future();
  party.thread.loop.post([&party, address, hello, timeout_ms, promise] {
    party.transport->connect(address, hello, timeout_ms,
                             [promise](Result<Transport::Connected> connected) {
                               promise->set_value(std::move(connected));
                             });
  });
  return get(std::move(future));
}

void End::send(std::vector<std::byte> message) {
  party_->thread.on_loop([&] { connection_->send(std::move(message)); });
}

std::future<Status> End::start_pull(const RemoteRegion& from, std::uint64_t offset,
                                    MutableBytes into, const Registration& local) {
  auto promise = std::make_shared<std::promise<Status>>();
  party_->thread.on_loop([&] {
    connection_->pull(from, offset, into, local,
                      [promise](Status status) { promise->set_value(std::move(status)); });
  });
  return promise->get_future();
}

std::future<Status> End::start_push(std::vector<Bytes> from, const Registration& local,
                                    const RemoteRegion& to, std::uint64_t offset) {
  auto promise = std::make_shared<std::promise<Status>>();
  party_->thread.on_loop([&] {
    connection_->push(std::move(from), local, to, offset,
                      [promise](Status status) { promise->set_value(std::move(status)); });
  });
  return promise->get_future();
}

std::unique_ptr<Exposure> End::expose(Registration& registration) {
  return expose(registration, registration.bytes());
}

std::unique_ptr<Exposure> End::expose(Registration& registration, MutableBytes part) {
  return connection_->expose(registration, part).value();  // from any thread
}

void End::close() {
  party_->thread.on_loop([this] { connection_->close(); });
}

void End::drop() {
  if (connection_) party_->thread.on_loop([this] { connection_.reset(); });
}

std::string End::description() {
  return party_->thread.on_loop([this] { return connection_->description(); });
}

Pair::Pair(Wire wire, std::chrono::milliseconds preface_timeout)
    : net(make_loopback_net()), server(wire, net, preface_timeout), client(wire, net) {
  address = listen(server, wire,
                   {.greet =
                        [](Bytes, const std::string&) {
                          return Transport::Greeting{bytes_of("welcome"), true};
                        },
                    .accepted =
                        [this](std::unique_ptr<Connection> connection, Bytes) {
                          const std::lock_guard lock(mutex_);
                          accepted_.set_value(std::move(connection));
                        }});
  std::tie(at_server, at_client) = connect_again();
}

std::future<std::unique_ptr<Connection>> Pair::accept_next() {
  const std::lock_guard lock(mutex_);
  accepted_ = {};
  return accepted_.get_future();
}

std::pair<End, End> Pair::connect_again() {
  auto accepted = accept_next();
  auto connected = connect(client, address, bytes_of("hello"));
  std::pair<End, End> ends{End(server, get(std::move(accepted))),
                           End(client, std::move(connected.value().connection))};
  ends.first.start();
  ends.second.start();
  return ends;
}

}  // namespace precis::test
