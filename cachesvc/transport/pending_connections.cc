#include "cachesvc/transport/pending_connections.h"

#include <algorithm>
#include <map>
#include <utility>

#include "precis/limits.h"

namespace precis {

void PendingConnections::add(Descriptor descriptor, const TlsContext* tls) {
  PeerName name = peer_name(descriptor.get());
  make_room(name.address);
  auto socket = tls != nullptr ? tls->wrap(std::move(descriptor), "")
                               : std::make_unique<Socket>(std::move(descriptor));
  Pending& pending = *pending_.emplace_back(std::make_unique<Pending>(loop_, std::move(socket)));
  pending.peer = {std::move(name), make_nonce()};
  pending.deadline = loop_.after(timeout_, [this, &pending] {
    const char* const over = pending.socket.socket().is_encrypted() ? " over TLS" : "";
    drop(pending, Status::timed_out(std::string("it sent no complete greeting") + over +
                                    " within " + std::to_string(timeout_.count()) + " ms"));
  });
  pending.greeting.emplace(greet(pending));
  loop_.post([&pending] {  // erase() destroys it by a later post
    if (!pending.is_gone) pending.greeting->start();
  });
}

void PendingConnections::clear() {
  while (!pending_.empty()) erase(*pending_.front());
}

void PendingConnections::make_room(const std::string& address) {
  std::map<std::string, std::size_t> counts;
  for (const auto& pending : pending_) ++counts[pending->peer.name.address];
  const bool of_address = counts[address] >= limits::kPendingConnectionsPerAddressMax;
  if (!of_address && pending_.size() < limits::kPendingConnectionsMax) return;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  // Sorted by age: among addresses with equally many sockets, it finds the oldest socket of all.
  const auto oldest = std::find_if(pending_.begin(), pending_.end(), [&](const auto& pending) {
    const std::string& its = pending->peer.name.address;
    return of_address ? its == address : counts[its] == most->second;
  });
  drop(**oldest, Status::rejected("too many connections from its address wait to be admitted"));
}

// After the socket is gone, this coroutine may still resume once, and then ends.
Task<void> PendingConnections::greet(Pending& pending) {
  if (const Status status = co_await pending.socket.shake_hands();
      !status.ok() || pending.is_gone) {
    co_return drop(pending, status);
  }
  const auto challenge = encode(Challenge{kProtocolVersion, pending.peer.challenge});
  if (const Status status = pending.socket.write(FrameKind::kChallenge, challenge); !status.ok()) {
    co_return drop(pending, status);
  }
  const auto frame = co_await pending.socket.read(limits::kHelloBytesMax);
  if (!frame.ok() || pending.is_gone) co_return drop(pending, frame.status());
  Welcome refusal;
  refusal.status = answer(pending, *frame, refusal.server);
  if (refusal.status.ok()) co_return;
  // The peer receives the reason and has time to read it.
  refusal.protocol_version = kProtocolVersion;
  static_cast<void>(pending.socket.write(FrameKind::kRefusal, encode(refusal)));
  if (refusal.server.empty()) host_.refused(pending.peer, refusal.status);
  pending.is_refused = true;
  static_cast<void>(co_await pending.socket.see_off());
  drop(pending, {});
}

Status PendingConnections::answer(Pending& pending, const GreetingSocket::Frame& frame,
                                  std::string& server) {
  if (frame.kind == FrameKind::kHello) {
    PRECIS_ASSIGN(const Hello hello, decode_hello(frame.body));
    const Welcome welcome = host_.greet(pending.peer, pending.socket.socket(), hello);
    server = welcome.server;
    PRECIS_TRY(welcome.status);
    if (pending.is_gone) return {};
    static_cast<void>(pending.socket.write(FrameKind::kWelcome, encode(welcome)));
    erase(pending);
    host_.admitted(pending.peer, pending.socket.release(), hello, welcome);
    return {};
  }
  if (frame.kind == FrameKind::kBind) {
    PRECIS_ASSIGN(const Bind bind, decode_bind(frame.body));
    PRECIS_TRY(host_.may_bind(pending.peer, bind));
    if (pending.socket.socket().is_unix()) {
      let_pass_descriptors(pending.socket.socket().descriptor(), true);
    }
    static_cast<void>(pending.socket.write(FrameKind::kBound, {}));
    erase(pending);
    host_.bound(pending.socket.release(), bind);
    return {};
  }
  return Status::invalid("a connection must begin with a Hello or a Bind");
}

void PendingConnections::drop(Pending& pending, const Status& why) {
  if (pending.is_gone) return;
  const bool silent = why.code() == StatusCode::kUnavailable || pending.is_refused;
  if (!silent) host_.refused(pending.peer, why);
  erase(pending);
}

// Destroys `pending` in a later turn, because one of its parts may be running.
void PendingConnections::erase(Pending& pending) {
  const auto place = std::ranges::find(pending_, &pending, &std::unique_ptr<Pending>::get);
  if (place == pending_.end()) return;
  pending.is_gone = true;
  pending.deadline.reset();
  loop_.post([gone = std::shared_ptr<Pending>(std::move(*place))] {});
  pending_.erase(place);
}

}  // namespace precis
