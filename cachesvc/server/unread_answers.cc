#include "cachesvc/server/unread_answers.h"

#include <algorithm>
#include <map>

#include "precis/limits.h"

namespace precis {

Status may_send(const std::vector<std::shared_ptr<Reader>>& readers, std::size_t bytes_max,
                const std::string& tenant, std::size_t size_bytes) {
  for (;;) {
    std::size_t unsent = 0;
    std::map<std::string, std::size_t> of_tenant;
    for (const auto& reader : readers) {
      unsent += reader->unsent_bytes();
      of_tenant[reader->tenant()] += reader->unsent_bytes();
    }
    if (unsent == 0 || unsent + size_bytes <= bytes_max) return {};
    const auto by_bytes = [](const auto& a, const auto& b) { return a.second < b.second; };
    const std::string most = std::ranges::max_element(of_tenant, by_bytes)->first;
    if (most == tenant && size_bytes > kSmallAnswerBytes) {
      return Status::rejected("unread answers have " + std::to_string(unsent) +
                                  " B and this answer has " + std::to_string(size_bytes) +
                                  " B, the limit is " + std::to_string(bytes_max) +
                                  " B (max_message_bytes); read the answers, then retry",
                              limits::kRetryAfterRequestsMs);
    }
    std::shared_ptr<Reader> slowest;
    for (const auto& reader : readers) {
      if (reader->tenant() != most) continue;
      if (!slowest || reader->unsent_bytes() > slowest->unsent_bytes()) slowest = reader;
    }
    slowest->disconnect("it does not read its answers: " + std::to_string(slowest->unsent_bytes()) +
                        " B are unread");
  }
}

}  // namespace precis
