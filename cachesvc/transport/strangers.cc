#include "cachesvc/transport/strangers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "precis/limits.h"

namespace precis {

void Strangers::add(Descriptor descriptor, const TlsContext* tls) {
  PeerName name = peer_name(descriptor.get());
  make_room(name.address);
  auto socket = tls != nullptr ? tls->wrap(std::move(descriptor), "")
                               : std::make_unique<Socket>(std::move(descriptor));
  Guest& guest = *guests_.emplace_back(std::make_unique<Guest>(loop_, std::move(socket)));
  guest.peer = {std::move(name), make_nonce()};
  guest.deadline = loop_.after(patience_, [this, &guest] {
    const char* const over = guest.socket.socket().is_encrypted() ? " over TLS" : "";
    drop(guest, Status::timed_out(std::string("it sent no complete greeting") + over + " within " +
                                  std::to_string(patience_.count()) + " ms"));
  });
  guest.greeting.emplace(greet(guest));
  loop_.post([&guest] {  // forget() destroys it by a later post
    if (!guest.is_gone) guest.greeting->start();
  });
}

void Strangers::clear() {
  while (!guests_.empty()) forget(*guests_.front());
}

void Strangers::make_room(const std::string& address) {
  std::map<std::string, std::size_t> counts;
  for (const auto& guest : guests_) ++counts[guest->peer.name.address];
  const bool of_address = counts[address] >= limits::kStrangersPerAddressMax;
  if (!of_address && guests_.size() < limits::kStrangersMax) return;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  // Sorted by age: among addresses with equally many guests, it finds the oldest guest of all.
  const auto oldest = std::find_if(guests_.begin(), guests_.end(), [&](const auto& guest) {
    const std::string& its = guest->peer.name.address;
    return of_address ? its == address : counts[its] == most->second;
  });
  drop(**oldest, Status::rejected("too many connections from its address wait to be admitted"));
}

// After the guest is gone, this coroutine may still resume once, and then ends.
Task<void> Strangers::greet(Guest& guest) {
  if (const Status status = co_await guest.socket.shake_hands(); !status.ok() || guest.is_gone) {
    co_return drop(guest, status);
  }
  const auto challenge = encode(Challenge{kProtocolVersion, guest.peer.challenge});
  if (const Status status = guest.socket.write(FrameKind::kChallenge, challenge); !status.ok()) {
    co_return drop(guest, status);
  }
  const auto frame = co_await guest.socket.read(limits::kHelloBytesMax);
  if (!frame.ok() || guest.is_gone) co_return drop(guest, frame.status());
  Welcome refusal;
  refusal.status = answer(guest, *frame, refusal.server);
  if (refusal.status.ok()) co_return;
  // The peer receives the reason and has time to read it.
  refusal.protocol_version = kProtocolVersion;
  static_cast<void>(guest.socket.write(FrameKind::kRefusal, encode(refusal)));
  if (refusal.server.empty()) host_.turned_away(guest.peer, refusal.status);
  guest.is_leaving = true;
  static_cast<void>(co_await guest.socket.see_off());
  drop(guest, {});
}

Status Strangers::answer(Guest& guest, const GreetingSocket::Frame& frame, std::string& server) {
  if (frame.kind == FrameKind::kHello) {
    PRECIS_ASSIGN(const Hello hello, decode_hello(frame.body));
    const Welcome welcome = host_.greet(guest.peer, guest.socket.socket(), hello);
    server = welcome.server;
    PRECIS_TRY(welcome.status);
    if (guest.is_gone) return {};
    static_cast<void>(guest.socket.write(FrameKind::kWelcome, encode(welcome)));
    forget(guest);
    host_.admitted(guest.peer, guest.socket.release(), hello, welcome);
    return {};
  }
  if (frame.kind == FrameKind::kBind) {
    PRECIS_ASSIGN(const Bind bind, decode_bind(frame.body));
    PRECIS_TRY(host_.may_bind(guest.peer, bind));
    if (guest.socket.socket().is_unix()) {
      let_pass_descriptors(guest.socket.socket().descriptor(), true);
    }
    static_cast<void>(guest.socket.write(FrameKind::kBound, {}));
    forget(guest);
    host_.bound(guest.socket.release(), bind);
    return {};
  }
  return Status::invalid("a connection must begin with a Hello or a Bind");
}

void Strangers::drop(Guest& guest, const Status& why) {
  if (guest.is_gone) return;
  const bool silent = why.code() == StatusCode::kUnavailable || guest.is_leaving;
  if (!silent) host_.turned_away(guest.peer, why);
  forget(guest);
}

// Destroys the guest in a later turn, because one of its parts may be running.
void Strangers::forget(Guest& guest) {
  const auto place = std::ranges::find(guests_, &guest, &std::unique_ptr<Guest>::get);
  if (place == guests_.end()) return;
  guest.is_gone = true;
  guest.deadline.reset();
  loop_.post([gone = std::shared_ptr<Guest>(std::move(*place))] {});
  guests_.erase(place);
}

}  // namespace precis
