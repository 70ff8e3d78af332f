#include "cachesvc/server/peers.h"

#include <utility>

namespace precis {

void Peers::add(std::shared_ptr<Peer> peer) {
  const std::uint64_t number = ++arrived_;
  open_.emplace(number, peer);
  peer->start([this, number](const std::shared_ptr<Peer>& closed) {
    all_ended();
    closed_.emplace_back(closed);
    open_.erase(number);
    loop_.post([closed] {});  // not destroyed inside a callback of its own connection
  });
}

// Erases the entries of destroyed peers, because a weak pointer keeps their memory.
bool Peers::all_ended() {
  std::erase_if(closed_, [](const std::weak_ptr<Peer>& peer) { return peer.expired(); });
  return closed_.empty();
}

void Peers::for_each(const std::function<void(Peer&)>& each) {
  const auto all = open_;
  for (const auto& [number, peer] : all) each(*peer);
}

void Peers::close_all(const std::string& why) {
  for_each([&](Peer& peer) { peer.close(why); });
}

void Peers::close_unless(const std::function<bool(const Tenant&)>& may_stay,
                         const std::string& why) {
  for_each([&](Peer& peer) {
    if (!may_stay(peer.admitted())) peer.close(why);
  });
}

void Peers::free_for_waiters(std::chrono::steady_clock::duration silence) {
  for_each([&](Peer& peer) { peer.free_for_waiters(silence); });
}

Status Peers::may_send(std::size_t bytes_max, const std::string& tenant,
                       std::size_t size_bytes) const {
  std::vector<std::shared_ptr<Reader>> readers;
  for (const auto& [number, peer] : open_) readers.push_back(peer);
  return precis::may_send(readers, bytes_max, tenant, size_bytes);
}

}  // namespace precis
