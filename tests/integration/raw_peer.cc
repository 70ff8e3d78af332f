#include "tests/integration/raw_peer.h"

#include <utility>

#include "client/src/transport/socket_client.h"

namespace precis::testing {

RawPeer::RawPeer() : transport_(make_socket_client(loop_)) {
  thread_ = std::thread([this] { loop_.run(); });
}

RawPeer::~RawPeer() {
  on_loop([this] {
    exposures_.clear();
    connection_.reset();
    registrations_.clear();
  });
  loop_.stop();
  thread_.join();
}

void RawPeer::on_loop(std::function<void()> fn) {
  std::promise<void> done;
  loop_.post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}

Result<Welcome> RawPeer::connect(const std::string& address, const Login& login) {
  constexpr std::uint32_t kTimeoutMs = 10'000;
  std::promise<Result<Welcome>> greeted;
  on_loop([&] {
    transport_->connect(address, login, kTimeoutMs, [&](Result<ClientTransport::Connected> result) {
      if (!result.ok()) return greeted.set_value(result.status());
      connection_ = std::move(result->connection);
      greeted.set_value(std::move(result->welcome));
    });
  });
  PRECIS_ASSIGN(auto welcome, greeted.get_future().get());
  on_loop([this] {
    if (!connection_) return;
    const auto on_message = [this](std::vector<std::byte> message) {
      const std::lock_guard lock(mutex_);
      received_.push_back(std::move(message));
      changed_.notify_all();
    };
    const auto on_closed = [this](Status status) {
      const std::lock_guard lock(mutex_);
      closed_ = status.ok() ? Status::unavailable("closed") : std::move(status);
      changed_.notify_all();
    };
    connection_->start({on_message, on_closed});
  });
  return welcome;
}

void RawPeer::send(std::vector<std::byte> message) {
  on_loop([&] { connection_->send(std::move(message)); });
}

void RawPeer::send_and_stand_still(std::vector<std::byte> message) {
  resumed_ = {};
  loop_.post([this, message = std::move(message)]() mutable {
    connection_->send(std::move(message));
    // The wait begins in a later turn, because a message leaves at the end of its own turn.
    loop_.post([this] { resumed_.get_future().wait(); });
  });
}

void RawPeer::resume() { resumed_.set_value(); }

Result<msg::Reply> RawPeer::call(msg::RequestBody body) {
  send(encode(msg::Request{next_id_++, std::move(body)}));
  return receive();
}

Result<msg::Reply> RawPeer::receive() {
  std::unique_lock lock(mutex_);
  for (;;) {  // the layers of a get come before its reply
    changed_.wait(lock, [&] { return !received_.empty() || !closed_.ok(); });
    if (received_.empty()) return closed_;
    PRECIS_ASSIGN(msg::ServerMessage message, decode_server_message(received_.front()));
    received_.pop_front();
    if (auto* const reply = std::get_if<msg::Reply>(&message)) return std::move(*reply);
  }
}

Status RawPeer::wait_closed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !closed_.ok(); });
  return closed_;
}

RemoteRegion RawPeer::expose(std::size_t size_bytes) {
  memory_.emplace_back(size_bytes);
  registrations_.push_back(transport_->register_memory(memory_.back()).value());
  exposures_.push_back(
      connection_->expose(*registrations_.back(), registrations_.back()->bytes()).value());
  return exposures_.back()->region();
}

}  // namespace precis::testing
