#include "tests/unit/transport/party.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "tests/unit/transport/certificate.h"

namespace precis::test {

const char* wire_name(Wire wire) {
  switch (wire) {
    case Wire::kLoopback: return "loopback";
    case Wire::kUnix: return "unix";
    case Wire::kTcp: return "tcp";
    case Wire::kTls: return "tls";
  }
  return "";
}

namespace {

std::string make_folder() {
  std::string pattern = std::filesystem::temp_directory_path() / "precis-transport-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  return pattern;
}

}  // namespace

const TlsFiles& test_certificate() {
  static const TlsFiles files = make_certificate(make_folder());
  return files;
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

void Inbox::note(std::vector<std::byte> message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  changed_.notify_all();
}

void Inbox::note(Status reason) {
  const std::lock_guard lock(mutex_);
  closed_.push_back(std::move(reason));
  changed_.notify_all();
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

SocketOptions Server::default_options() {
  SocketOptions options;
  options.greeting_timeout = kPatience;
  return options;
}

Server::Server(Wire wire, std::shared_ptr<LoopbackNet> net, SocketOptions options) {
  if (wire == Wire::kUnix) options.listen_unix = (folder_ = make_folder()) + "/socket";
  if (wire == Wire::kTls) {
    TlsFiles files = test_certificate();
    files.ca.clear();
    options.tls = TlsContext::for_server(files).value();
  }
  transport = thread.on_loop([&]() -> std::unique_ptr<Transport> {
    if (wire == Wire::kLoopback) return make_loopback_server(thread.loop, net);
    return make_socket_transport(thread.loop, options);
  });
}

Server::~Server() {
  thread.on_loop([this] { transport.reset(); });
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

Caller::Caller(Wire wire, std::shared_ptr<LoopbackNet> net) {
  SocketClientOptions options;
  if (wire == Wire::kTls) {
    options.tls = TlsContext::for_client({"", "", test_certificate().ca}).value();
  }
  transport = thread.on_loop([&]() -> std::unique_ptr<ClientTransport> {
    if (wire == Wire::kLoopback) return make_loopback_client(thread.loop, net);
    return make_socket_client(thread.loop, options);
  });
}

std::string listen(Server& server, Wire wire, Transport::Acceptor acceptor) {
  return server.thread.on_loop([&] {
    const char* address = wire == Wire::kLoopback ? "loopback:test" : "127.0.0.1:0";
    return server.transport->listen(address, std::move(acceptor)).value();
  });
}

Transport::Acceptor open_door(std::function<void(std::unique_ptr<Connection>)> accepted) {
  return {.greet =
              [](const Transport::LoginAttempt&) {
                return Transport::Greeting{{}, "test", ""};
              },
          .accepted = [accepted = std::move(accepted)](
                          std::unique_ptr<Connection> connection,
                          const Hello&) { accepted(std::move(connection)); }};
}

Result<ClientTransport::Connected> connect(Caller& caller, const std::string& address,
                                           const Login& login, std::uint32_t timeout_ms) {
  auto promise = std::make_shared<std::promise<Result<ClientTransport::Connected>>>();
  auto future = promise->get_future();
  caller.thread.loop.post([&caller, address, login, timeout_ms, promise] {
    caller.transport->connect(address, login, timeout_ms,
                              [promise](Result<ClientTransport::Connected> connected) {
                                promise->set_value(std::move(connected));
                              });
  });
  return get(std::move(future));
}

Status ServerEnd::pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                       const Registration& local) {
  return get(start_pull(from, offset, into, local));
}

Status ServerEnd::push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
                       std::uint64_t offset) {
  return get(start_push(std::move(from), local, to, offset));
}

std::future<Status> ServerEnd::start_pull(const RemoteRegion& from, std::uint64_t offset,
                                          MutableBytes into, const Registration& local) {
  auto promise = std::make_shared<std::promise<Status>>();
  thread_->on_loop([&] {
    connection_->pull(from, offset, into, local,
                      [promise](Status status) { promise->set_value(std::move(status)); });
  });
  return promise->get_future();
}

std::future<Status> ServerEnd::start_push(std::vector<Bytes> from, const Registration& local,
                                          const RemoteRegion& to, std::uint64_t offset) {
  auto promise = std::make_shared<std::promise<Status>>();
  thread_->on_loop([&] {
    connection_->push(std::move(from), local, to, offset,
                      [promise](Status status) { promise->set_value(std::move(status)); });
  });
  return promise->get_future();
}

Pair::Pair(Wire wire, SocketOptions options)
    : net(make_loopback_net()), server(wire, net, std::move(options)), client(wire, net) {
  address = listen(server, wire, open_door([this](std::unique_ptr<Connection> connection) {
                     const std::lock_guard lock(mutex_);
                     accepted_.set_value(std::move(connection));
                   }));
  std::tie(at_server, at_client) = connect_again();
}

std::future<std::unique_ptr<Connection>> Pair::accept_next() {
  const std::lock_guard lock(mutex_);
  accepted_ = {};
  return accepted_.get_future();
}

std::pair<ServerEnd, CallerEnd> Pair::connect_again() {
  auto accepted = accept_next();
  auto connected = connect(client, address, {"hello", "", ""});
  std::pair<ServerEnd, CallerEnd> ends{
      ServerEnd(server.thread, get(std::move(accepted))),
      CallerEnd(client.thread, std::move(connected.value().connection))};
  ends.first.start();
  ends.second.start();
  return ends;
}

}  // namespace precis::test
