#include "cachesvc/server/read_requests.h"

#include <string>
#include <utility>

#include "precis/limits.h"

namespace precis {

Task<Answer> ReadRequests::on(msg::Lookup request) {
  if (caller_.tenant.role < Role::kWriter && request.hints != msg::Hints{}) {
    co_return Status::denied("hints of a lookup need the role writer, and tenant '" +
                             caller_.tenant.name + "' has the role reader: look up without them");
  }
  const std::size_t tokens = request.tokens.size();
  const bool counts = asks_for_counts(request);
  if (counts && counting_ >= limits::kGetsPerConnectionMax) {
    co_return Status::rejected(
        "this connection has " + std::to_string(counting_) +
            " lookups with a budget in progress, which is the limit; wait for one",
        limits::kRetryAfterRequestsMs);
  }
  counting_ += counts ? 1 : 0;
  const Clock::Time began = caller_.parts.clock.now();
  auto match = co_await caller_.parts.lookup.run(caller_.tenant, std::move(request),
                                                 &caller_.connection, caller_.gone);
  counting_ -= counts ? 1 : 0;
  caller_.observe(caller_.parts.metrics.lookup_seconds, began);
  ++caller_.parts.metrics.lookups;
  caller_.parts.metrics.lookup_tokens += static_cast<std::int64_t>(tokens);
  if (match.ok() && match->matched_tokens > 0) {
    ++caller_.parts.metrics.lookup_hits;
    caller_.parts.metrics.lookup_hit_tokens += match->matched_tokens;
  }
  co_return answer(std::move(match));
}

Task<Answer> ReadRequests::on(std::uint64_t id, msg::Get request) {
  if (gets_.size() >= limits::kGetsPerConnectionMax) {
    co_return Status::rejected("this connection has " + std::to_string(gets_.size()) +
                                   " gets in progress, which is the limit; wait for one",
                               limits::kRetryAfterRequestsMs);
  }
  auto get = std::make_shared<GetPath::Get>(GetPath::Get{id});
  if (!gets_.emplace(id, get).second) {
    co_return Status::invalid("request id " + std::to_string(id) + " is in use by another get");
  }
  ++caller_.parts.metrics.gets;
  const Clock::Time began = caller_.parts.clock.now();
  bool first = true;
  auto done = co_await caller_.parts.get_path.run(
      get, caller_.tenant, std::move(request), caller_.connection, [&](msg::LayerServed layer) {
        const bool is_first = std::exchange(first, false);
        if (is_first) caller_.observe(caller_.parts.metrics.first_layer_seconds, began);
        return served_(std::move(layer));
      });
  gets_.erase(id);
  if (done.ok()) caller_.observe(caller_.parts.metrics.get_seconds, began);
  if (!done.ok()) ++caller_.parts.metrics.gets_failed;
  co_return answer(std::move(done));
}

Task<Answer> ReadRequests::on(msg::Cancel request) {
  const auto it = gets_.find(request.request);
  if (it != gets_.end()) it->second->canceled = true;  // else it is answered already
  co_return answer(Status());
}

void ReadRequests::cancel() {
  for (auto& [id, get] : gets_) get->canceled = true;
}

}  // namespace precis
