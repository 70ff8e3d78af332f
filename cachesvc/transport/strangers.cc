#include "cachesvc/transport/strangers.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "precis/limits.h"

namespace precis {

void Strangers::add(Descriptor descriptor, const TlsContext* tls) {
  auto guest = std::make_shared<Guest>();
  guest->peer.name = peer_name(descriptor.get());
  guest->peer.challenge = make_nonce();
  make_room(guest->peer.name.address);
  guests_.push_back(guest);
  guest->deadline = loop_.after(patience_, [this, guest] {
    const auto fired = std::move(guest->deadline);  // lives until the end of its own call
    drop(guest, Status::timed_out("it said no whole greeting within " +
                                  std::to_string(patience_.count()) + " ms"));
  });
  auto socket = std::make_unique<Socket>(std::move(descriptor), tls ? tls->session("") : nullptr);
  guest->peer.socket_kind = socket->is_unix() ? "unix" : tls != nullptr ? "tls" : "tcp";
  guest->handshake = std::make_unique<Handshake>(
      loop_, std::move(socket), [this, guest](Result<std::unique_ptr<Socket>> shaken) {
        const auto over = std::move(guest->handshake);
        if (guest->gone) return;
        if (!shaken.ok()) return drop(guest, shaken.status());
        challenge(guest, std::move(*shaken));
      });
}

void Strangers::clear() {
  const auto all = guests_;  // each takes itself out
  for (const auto& guest : all) forget(guest);
}

void Strangers::make_room(const std::string& address) {
  std::map<std::string, std::size_t> counts;
  for (const auto& guest : guests_) ++counts[guest->peer.name.address];
  const bool of_address = counts[address] >= limits::kStrangersPerAddressMax;
  if (!of_address && guests_.size() < limits::kStrangersMax) return;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string& crowded = of_address ? address : most->first;
  const auto oldest = std::find_if(guests_.begin(), guests_.end(), [&](const auto& guest) {
    return guest->peer.name.address == crowded;
  });
  drop(*oldest, Status::rejected("too many connections of its address wait to be admitted"));
}

void Strangers::challenge(const std::shared_ptr<Guest>& guest, std::unique_ptr<Socket> socket) {
  guest->control =
      std::make_shared<ControlStream>(loop_, std::move(socket), limits::kHelloBytesMax);
  guest->control->start({.on_frame =
                             [this, guest](const FrameHeader& header, std::vector<std::byte> body) {
                               on_frame(guest, header.kind, body);
                             },
                         .on_end = [this, guest](const Status& why) { drop(guest, why); }});
  guest->control->send(FrameKind::kChallenge,
                       encode(Challenge{kProtocolVersion, guest->peer.challenge}));
}

void Strangers::on_frame(const std::shared_ptr<Guest>& guest, FrameKind kind, Bytes body) {
  if (guest->gone) return;
  guest->control->pause();
  if (kind == FrameKind::kHello) {
    const auto hello = decode_hello(body);
    return hello.ok() ? on_hello(guest, *hello) : refuse(guest, hello.status(), "");
  }
  if (kind == FrameKind::kBind) {
    const auto bind = decode_bind(body);
    return bind.ok() ? on_bind(guest, *bind) : refuse(guest, bind.status(), "");
  }
  refuse(guest, Status::invalid("a connection begins with a Hello or a Bind"), "");
}

void Strangers::on_hello(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  const Welcome welcome = handlers_.greet(guest->peer, hello);
  if (!welcome.status.ok()) return refuse(guest, welcome.status, welcome.server);
  guest->control->send(FrameKind::kWelcome, encode(welcome));
  const auto control = std::move(guest->control);
  forget(guest);
  handlers_.admitted(guest->peer, hello, welcome, control);
}

void Strangers::on_bind(const std::shared_ptr<Guest>& guest, const Bind& bind) {
  const Status status = handlers_.may_bind(guest->peer, bind);
  if (!status.ok()) return refuse(guest, status, "");
  guest->control->send(FrameKind::kBound, {});
  const auto control = std::move(guest->control);
  forget(guest);
  handlers_.bound(bind, control->release());
}

void Strangers::refuse(const std::shared_ptr<Guest>& guest, const Status& why,
                       const std::string& server) {
  Welcome refusal;
  refusal.status = why;
  refusal.protocol_version = kProtocolVersion;
  refusal.server = server;
  guest->control->send(FrameKind::kRefusal, encode(refusal));
  guest->leaving = std::move(guest->control)->release();
  if (handlers_.turned_away && server.empty()) handlers_.turned_away(guest->peer.name.text, why);
  if (!guest->leaving) return forget(guest);
  ::shutdown(guest->leaving->descriptor(), SHUT_WR);
  guest->leaving_watch = loop_.watch_readable(guest->leaving->descriptor(), [this, guest] {
    std::array<std::byte, 4096> thrown_away;
    if (guest->leaving->read(thrown_away).state == Socket::Io::State::kEnded) forget(guest);
  });
}

void Strangers::drop(const std::shared_ptr<Guest>& guest, const Status& why) {
  if (guest->gone) return;
  const bool silent = why.code() == StatusCode::kUnavailable || guest->leaving != nullptr;
  if (handlers_.turned_away && !silent) handlers_.turned_away(guest->peer.name.text, why);
  forget(guest);
}

void Strangers::forget(const std::shared_ptr<Guest>& guest) {
  const auto kept = guest;  // its parts hold the other references
  kept->gone = true;
  guests_.remove(kept);
  kept->deadline.reset();
  kept->leaving_watch.reset();
  kept->leaving.reset();
  // Callbacks of either may be under way.
  loop_.post([handshake = std::shared_ptr<Handshake>(std::move(kept->handshake)),
              control = std::move(kept->control)] {
    if (control) control->close();
  });
}

}  // namespace precis
