// The client's half of the transport over UCX: attempts to connect, step by step.
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "cachesvc/transport/ucx_connection.h"
#include "cachesvc/transport/ucx_transport_impl.h"

namespace precis {

using std::chrono::milliseconds;

void UcxTransport::connect(const std::string& address, std::vector<std::byte> hello,
                           std::uint32_t timeout_ms, std::function<void(Result<Connected>)> done) {
  const std::uint64_t id = next_id_++;
  Attempt& attempt = *(attempts_[id] = std::make_shared<Attempt>());
  attempt.address = address;
  attempt.hello = std::move(hello);
  attempt.done = std::move(done);
  attempt.deadline = loop_.after(milliseconds(timeout_ms), [this, id, timeout_ms] {
    const Attempt& late = *attempts_.at(id);
    const std::string within = " within " + std::to_string(timeout_ms) + " ms";
    std::string what = late.address + " did not answer" + within;
    if (late.link) {
      what = late.address + " answered, but UCX did not reach it" + within +
             "; are its other ports open to this machine?";
    }
    if (!late.connecting) {
      what = late.address + " was not tried" + within +
             ": another attempt of this client, or a connection from before one that failed, was "
             "not over";
    }
    finish(id, Status::timed_out(std::move(what)));
  });
  begin_attempt();
}

void UcxTransport::begin_attempt() {
  const auto oldest = attempts_.begin();
  if (oldest == attempts_.end() || oldest->second->connecting) return;
  const std::uint64_t id = oldest->first;
  if (out_of_step_.contains(oldest->second->address)) {
    if (!links_.empty()) return;  // the end of the last one comes back here
    if (const Status renewed = worker_->renew(); !renewed.ok()) return finish(id, renewed);
    out_of_step_.clear();
  }
  oldest->second->connecting = preface_connect(
      loop_, oldest->second->address, [this, id](Result<std::unique_ptr<PrefaceSocket>> socket) {
        on_connected(id, std::move(socket));
      });
}

void UcxTransport::begin_attempt_later() {
  if (attempts_.empty()) return;
  // An attempt that lives has a transport that does.
  loop_.post([this, weak = std::weak_ptr(attempts_.begin()->second)] {
    if (!weak.expired()) begin_attempt();
  });
}

void UcxTransport::on_connected(std::uint64_t id, Result<std::unique_ptr<PrefaceSocket>> socket) {
  if (!socket.ok()) return finish(id, socket.status());
  Attempt& attempt = *attempts_.at(id);
  attempt.socket = std::move(*socket);
  attempt.link_id = random_id();
  attempt.window = std::make_unique<HostWindow>();

  preface::Introduction mine;
  mine.link_id = attempt.link_id;
  mine.host = host_;
  mine.pid = static_cast<std::uint32_t>(getpid());
  mine.challenge_address = attempt.window->challenge_address();
  mine.worker_address = worker_->address();
  mine.payload = std::move(attempt.hello);
  attempt.socket->write(preface::Kind::kHello, preface::encode_introduction(mine));
  attempt.socket->read(
      [this, id](Result<preface::Frame> frame) { on_answer(id, std::move(frame)); });
}

void UcxTransport::on_answer(std::uint64_t id, Result<preface::Frame> frame) {
  // No bytes of the caller's are corrupt: there is no service.
  if (frame.status().code() == StatusCode::kCorruption) {
    return finish(id, Status::unavailable(
                          attempts_.at(id)->address +
                          " does not answer as a precisd would: " + frame.status().message()));
  }
  if (frame.status().code() == StatusCode::kUnavailable) {
    return finish(id, Status::unavailable(attempts_.at(id)->address +
                                          " did not say welcome: " + frame.status().message() +
                                          "; it stops, or is no precisd"));
  }
  if (!frame.ok()) return finish(id, frame.status());
  if (frame->kind == preface::Kind::kRefusal) {
    return finish(id, Connected{nullptr, std::move(frame->body)});
  }
  const Status status = reach(id, *attempts_.at(id), *frame);
  if (!status.ok()) finish(id, status);
}

Status UcxTransport::reach(std::uint64_t id, Attempt& attempt, const preface::Frame& welcome) {
  if (welcome.kind == preface::Kind::kError) return preface::decode_error(welcome.body);
  if (welcome.kind != preface::Kind::kWelcome) {
    return Status::invalid("the peer answers a hello with another frame");
  }
  PRECIS_ASSIGN(preface::Introduction peer, preface::decode_introduction(welcome.body));
  attempt.hello_reply = std::move(peer.payload);
  attempt.window->answer(peer.challenge);
  PRECIS_ASSIGN(attempt.link, make_link(attempt.link_id, peer));
  out_of_step_.insert(attempt.address);  // until the server has taken its end
  attempt.link->use_window(std::move(attempt.window));
  // The transport may be gone by then, and with it every attempt.
  attempt.link->reach([this, id, weak = std::weak_ptr(attempts_.at(id))](const Status& reached) {
    if (!weak.expired()) on_reached(id, reached);
  });
  attempt.socket->read([this, id](const Result<preface::Frame>& frame) {
    finish(id, settle(*attempts_.at(id), frame));
  });
  return {};
}

void UcxTransport::on_reached(std::uint64_t id, const Status& reached) {
  if (!reached.ok()) {
    return finish(id, Status::unavailable("UCX did not reach the service: " + reached.message()));
  }
  Attempt& attempt = *attempts_.at(id);
  attempt.ready = true;
  attempt.socket->write(preface::Kind::kReady, {});
}

Result<Transport::Connected> UcxTransport::settle(Attempt& attempt,
                                                  const Result<preface::Frame>& frame) {
  PRECIS_TRY(frame.status());
  if (frame->kind == preface::Kind::kError) return preface::decode_error(frame->body);
  if (frame->kind != preface::Kind::kStart || !attempt.ready) {
    return Status::invalid("the peer answers out of turn");
  }
  PRECIS_ASSIGN(const preface::Terms terms, preface::decode_terms(frame->body));
  if (attempt.link->over()) return Status::unavailable("UCX lost the service as it came");
  out_of_step_.erase(attempt.address);
  auto link = std::exchange(attempt.link, nullptr);
  link->window()->watch(attempt.socket->descriptor());
  if (terms.one_sided) link->announce_regions();
  if (terms.stream) link->use_stream(nullptr);
  link->watch(std::move(attempt.socket));
  return Connected{std::make_unique<UcxConnection>(std::move(link), attempt.address),
                   std::move(attempt.hello_reply)};
}

void UcxTransport::finish(std::uint64_t id, Result<Connected> result) {
  const auto attempt = attempts_.extract(id);
  begin_attempt_later();
  attempt.mapped()->done(std::move(result));
}

}  // namespace precis
