// The connected clients of a service. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/server/peer.h"

namespace precis {

class Peers {
 public:
  explicit Peers(EventLoop& loop) : loop_(loop) {}

  void add(std::shared_ptr<Peer> peer);  // and starts it
  std::size_t size() const { return open_.size(); }
  // Returns true if no request of a closed connection is in progress.
  bool all_ended();
  void close_all(const std::string& why);
  // Closes the clients for which `may_stay` returns false.
  void close_unless(const std::function<bool(const Tenant&)>& may_stay, const std::string& why);
  // As Peer::free_for_waiters().
  void free_for_waiters(std::chrono::steady_clock::duration silence);
  // As precis::may_send(), to a connection of `tenant`.
  Status may_send(std::size_t bytes_max, const std::string& tenant, std::size_t size_bytes) const;

 private:
  // `each` may close its peer, which removes the peer from open_.
  void for_each(const std::function<void(Peer&)>& each);

  EventLoop& loop_;
  std::map<std::uint64_t, std::shared_ptr<Peer>> open_;  // in order of arrival
  std::uint64_t arrived_ = 0;
  std::vector<std::weak_ptr<Peer>> closed_;  // closed, with requests in progress
};

}  // namespace precis
