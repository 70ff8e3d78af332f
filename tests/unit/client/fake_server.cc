#include "tests/unit/client/fake_server.h"

#include <future>
#include <utility>

#include "client/src/attach.h"

namespace precis::testing {

FakeServer::Host::~Host() {
  loop.stop();
  thread.join();
}

FakeServer::FakeServer(Script script)
    : host_(std::make_shared<Host>()), script_(std::move(script)) {
  const std::shared_ptr<LoopbackNet> net = make_loopback_net();
  host_->transport = make_loopback_server(host_->loop, net);
  host_->client = make_loopback_client(host_->loop, net);
  host_->thread = std::thread([loop = &host_->loop] { loop->run(); });
  on_loop([this] {
    Transport::Acceptor acceptor;
    acceptor.greet = [this](const Transport::LoginAttempt&) {
      return Transport::Greeting{refusal, "fake", ""};
    };
    acceptor.accepted = [this](std::unique_ptr<Connection> connection, const Hello&) {
      connection_ = std::move(connection);
      connection_->start({.on_message = [this](std::vector<std::byte> m) { on_message(m); },
                          .on_closed = [](Status) {}});
    };
    auto bound = host_->transport->listen("loopback:fake", std::move(acceptor));
    PRECIS_CHECK(bound.ok());
    address_ = *bound;
  });
}

FakeServer::~FakeServer() {
  on_loop([this] {
    connection_.reset();
    host_->transport->stop_listening();
  });
}

void FakeServer::on_loop(std::function<void()> fn) {
  std::promise<void> done;
  host_->loop.post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}

Result<std::shared_ptr<Client>> FakeServer::connect() {
  ConnectOptions once;
  once.retry = false;
  return connect(once);
}

Result<std::shared_ptr<Client>> FakeServer::connect(const ConnectOptions& options) {
  return attach(host_, host_->runtime, host_->loop, *host_->client, address_, options);
}

ReconnectingChannel::Dial FakeServer::dial() {
  const auto memory = std::make_shared<HostMemory>(host_, *host_->client);
  return [host = host_, memory, address = address_](std::uint32_t timeout_ms) {
    return Channel::open(host, host->runtime, host->loop, *host->client, memory, address,
                         ConnectOptions{}, timeout_ms);
  };
}

void FakeServer::on_message(const std::vector<std::byte>& bytes) {
  auto request = decode_request(bytes);
  PRECIS_CHECK(request.ok());
  seen_.push_back(*request);
  if (answer_small) {
    if (std::holds_alternative<msg::Ping>(request->body)) {
      return reply(request->id, msg::Done{});
    }
    if (std::holds_alternative<msg::AbortPut>(request->body)) {
      return reply(request->id, msg::Done{});
    }
    if (const auto* cancel = std::get_if<msg::Cancel>(&request->body)) {
      refuse(cancel->request, Status::canceled("the client stopped the get"));
      return reply(request->id, msg::Done{});
    }
  }
  script_(*this, std::move(request).value());
}

void FakeServer::reply(std::uint64_t id, msg::ReplyBody body) {
  send(msg::Reply{id, {}, std::move(body)});
}
void FakeServer::refuse(std::uint64_t id, Status status) {
  send(msg::Reply{id, std::move(status), msg::Done{}});
}
void FakeServer::send(const msg::ServerMessage& message) { connection_->send(encode(message)); }
void FakeServer::send_raw(std::vector<std::byte> bytes) { connection_->send(std::move(bytes)); }
void FakeServer::drop() { connection_->close(); }

void FakeServer::push(const RemoteRegion& to, std::uint64_t offset, std::vector<std::byte> bytes,
                      std::function<void(Status)> then) {
  struct Source {
    std::vector<std::byte> bytes;
    std::unique_ptr<Registration> registration;
  };
  auto source = std::make_shared<Source>();  // for the completion, which may come after the return
  source->bytes = std::move(bytes);
  auto registration = host_->transport->register_memory(source->bytes);
  PRECIS_CHECK(registration.ok());
  source->registration = std::move(registration).value();
  connection_->push({source->bytes}, *source->registration, to, offset,
                    [source, then = std::move(then)](Status status) { then(std::move(status)); });
}

void FakeServer::pull(const RemoteRegion& from, std::size_t size_bytes,
                      std::function<void(std::vector<std::byte>)> then) {
  struct Target {
    std::vector<std::byte> bytes;
    std::unique_ptr<Registration> registration;
  };
  auto target = std::make_shared<Target>();  // as above
  target->bytes.resize(size_bytes);
  auto registration = host_->transport->register_memory(target->bytes);
  PRECIS_CHECK(registration.ok());
  target->registration = std::move(registration).value();
  connection_->pull(from, 0, target->bytes, *target->registration,
                    [target, then = std::move(then)](Status status) {
                      PRECIS_CHECK(status.ok());
                      then(target->bytes);
                    });
}

}  // namespace precis::testing
