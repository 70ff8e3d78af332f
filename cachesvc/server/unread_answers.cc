#include "cachesvc/server/unread_answers.h"

#include <algorithm>
#include <map>

#include "precis/limits.h"

namespace precis {

Status may_send(const std::unordered_set<std::shared_ptr<Peer>>& peers, std::size_t bytes_max,
                const std::string& tenant, std::size_t size_bytes) {
  for (;;) {
    std::size_t unsent = 0;
    std::map<std::string, std::size_t> of_tenant;
    for (const auto& peer : peers) {
      unsent += peer->unsent_bytes();
      of_tenant[peer->tenant()] += peer->unsent_bytes();
    }
    if (unsent == 0 || unsent + size_bytes <= bytes_max) return {};
    const auto by_bytes = [](const auto& a, const auto& b) { return a.second < b.second; };
    const std::string most = std::ranges::max_element(of_tenant, by_bytes)->first;
    if (most == tenant && size_bytes > kSmallAnswerBytes) {
      return Status::rejected("answers of " + std::to_string(unsent) +
                                  " B wait to be read and this one has " +
                                  std::to_string(size_bytes) + " B, the most there may be are " +
                                  std::to_string(bytes_max) + " B (max_message_bytes); retry later",
                              limits::kRetryAfterRequestsMs);
    }
    std::shared_ptr<Peer> slowest;
    for (const auto& peer : peers) {
      if (peer->tenant() != most) continue;
      if (!slowest || peer->unsent_bytes() > slowest->unsent_bytes()) slowest = peer;
    }
    slowest->shed("it does not read its answers, of which " +
                  std::to_string(slowest->unsent_bytes()) + " B wait");
  }
}

}  // namespace precis
