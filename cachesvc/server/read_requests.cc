#include "cachesvc/server/read_requests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cachesvc/catalog/sessions.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/hot_segments.h"
#include "cachesvc/server/owner_check.h"
#include "cachesvc/server/shard_keeper.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kOthers = 3;  // nodes that also serve a hot prefix

const char* tier(bool is_cold) { return is_cold ? "disk" : "memory"; }

}  // namespace

Task<Answer> ReadRequests::on(msg::Lookup request) {
  const bool may_write = caller_.tenant.role >= Role::kWriter;
  if (request.hints != msg::Hints{} && !may_write) {
    co_return Status::denied("hints of a lookup need the role writer, and tenant '" +
                             caller_.tenant.name + "' has the role reader: look up without them");
  }
  PRECIS_CO_ASSIGN(const auto shard, owned_shard(caller_, request));
  const Clock::Time began = caller_.parts.clock.now();
  if (!request.session.empty()) {
    Catalog& catalog = caller_.parts.catalog;
    const auto session =
        found_or_moved(caller_, shard, catalog.session(caller_.tenant.name, request.session));
    PRECIS_CO_TRY(session.status());
    if (may_write && caller_.check_uploads().ok() &&
        renewal_is_due(*session, caller_.parts.clock.unix_ms())) {
      // After a failure, for example on a full disk, the session only keeps its former time to
      // live. The request waits, so that the limit on requests bounds the renewals of a slow disk.
      (void)co_await caller_.stored(
          [&] { return catalog.renew_session(caller_.tenant.name, request.session); });
    }
  }
  const std::size_t tokens = request.tokens.size();
  const auto model = caller_.parts.catalog.model(caller_.tenant.name, request.model);
  const bool counts = asks_for_counts(request);
  if (counts && counting_ >= limits::kGetsPerConnectionMax) {
    co_return Status::rejected(
        "this connection has " + std::to_string(counting_) +
            " lookups with a budget in progress, which is the limit; wait for one",
        limits::kRetryAfterRequestsMs);
  }
  counting_ += counts ? 1 : 0;
  const auto trace = caller_.parts.tracer.begin(request.traceparent);
  auto match = co_await caller_.parts.lookup.run(
      caller_.tenant, std::move(request), &caller_.connection, caller_.gone, number_of(shard));
  if (const Status owned = still_owned(caller_, shard); !owned.ok()) match = owned;
  counting_ -= counts ? 1 : 0;
  if (match.ok()) tell_others(*match);
  const RequestLabels labels = count(match, model, tokens, began);
  if (trace) {
    trace->end("precis.lookup", labels, match.status().code(),
               {{"tokens", tokens},
                {"matched_tokens", match.ok() ? match->matched_tokens : 0},
                {"bytes", match.ok() ? match->bytes : 0}});
  }
  co_return answer(std::move(match));
}

RequestLabels ReadRequests::count(const Result<msg::Match>& match, const Result<ModelSpec>& model,
                                  std::size_t tokens, Clock::Time began) const {
  Metrics& metrics = caller_.parts.metrics;
  // A model that is not registered is no label: clients could make up any number of them.
  RequestLabels labels = caller_.labels(model.ok() ? model->name : "");
  caller_.observe(metrics.lookup_seconds, labels, began);
  ++metrics.lookups;
  metrics.lookup_tokens += static_cast<std::int64_t>(tokens);
  metrics.asked_tokens.at(labels) += static_cast<std::int64_t>(tokens);
  if (!match.ok() || match->matched_tokens == 0) return labels;
  ++metrics.lookup_hits;
  metrics.lookup_hit_tokens += match->matched_tokens;
  const bool is_hot = std::ranges::all_of(
      match->links, [](const msg::MatchLink& link) { return link.segment.in_memory; });
  labels.tier = tier(!is_hot);
  ++metrics.hits.at(labels);
  metrics.hit_tokens.at(labels) += match->matched_tokens;
  return labels;
}

void ReadRequests::tell_others(msg::Match& match) const {
  const HotSegments* const hot = caller_.parts.hot;
  if (hot == nullptr || match.links.empty()) return;
  const SegmentId& tip = match.links.back().segment.id;
  if (!hot->is_hot(tip)) return;
  for (std::string& address : caller_.parts.membership->others_for(tip.hex(), kOthers)) {
    match.also_at.push_back({std::move(address)});
  }
}

Task<Status> ReadRequests::take_guests(const msg::Get& request) const {
  if (!request.shard) co_return Status();
  ShardKeeper* const shards = caller_.parts.shards;
  if (shards == nullptr) {
    co_return Status::unsupported("this node shares no storage with others: get it at the owner");
  }
  std::vector<SegmentId> missing;
  for (const msg::GetLink& link : request.links) {
    const auto row = caller_.parts.catalog.served_segment(caller_.tenant.name, link.segment);
    const SegmentLeases::Version asked{link.segment, link.created_unix_ms, link.stored_entries};
    const bool is_it = row.ok() && SegmentLeases::Version::of(**row) == asked;
    if (!is_it) missing.push_back(link.segment);
  }
  if (missing.empty()) co_return Status();
  const std::uint32_t shard = *request.shard;
  co_return co_await run_on(caller_.parts.reads, caller_.parts.loop, caller_.owner(), [&] {
    return shards->take_guests(caller_.tenant.name, shard, missing);
  });
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
  const auto trace = caller_.parts.tracer.begin(request.traceparent);
  get->traced = trace != nullptr;
  const std::uint64_t tokens = request.links.empty() ? 0 : request.links.back().matched_end;
  const SegmentId tip = request.links.empty() ? SegmentId() : request.links.back().segment;
  const Clock::Time began = caller_.parts.clock.now();
  bool first = true;
  std::optional<Clock::Time> first_served;
  if (const Status taken = co_await take_guests(request); !taken.ok()) {
    gets_.erase(id);
    ++caller_.parts.metrics.gets_failed;
    co_return taken;
  }
  auto done = co_await caller_.parts.get_path.run(
      get, caller_.tenant, std::move(request), caller_.connection, [&](msg::LayerServed layer) {
        const bool is_first = std::exchange(first, false);
        if (is_first) {
          if (get->traced) first_served = caller_.parts.clock.now();
          caller_.observe(caller_.parts.metrics.first_layer_seconds,
                          caller_.labels(get->model, tier(get->first_cold)), began);
        }
        return served_(std::move(layer));
      });
  gets_.erase(id);
  if (done.ok()) {
    const RequestLabels labels = caller_.labels(get->model, tier(get->any_cold));
    caller_.observe(caller_.parts.metrics.get_seconds, labels, began);
    caller_.parts.metrics.served_bytes.at(labels) += static_cast<std::int64_t>(done->bytes);
  }
  if (done.ok() && caller_.parts.hot != nullptr) caller_.parts.hot->served(tip, done->bytes);
  if (!done.ok()) ++caller_.parts.metrics.gets_failed;
  if (trace) end_trace(*trace, *get, first_served, tokens, done);
  co_return answer(std::move(done));
}

void ReadRequests::end_trace(Trace& trace, const GetPath::Get& get,
                             std::optional<Clock::Time> first_served, std::uint64_t tokens,
                             const Result<msg::GetDone>& done) const {
  if (get.in_memory) trace.stage("wait", trace.began(), *get.in_memory);
  if (first_served) {
    trace.stage("first_layer", *get.in_memory, *first_served);
    trace.stage("layers", *first_served, caller_.parts.clock.now());
  }
  trace.end("precis.get", caller_.labels(get.model, get.in_memory ? tier(get.any_cold) : ""),
            done.status().code(), {{"tokens", tokens}, {"bytes", done.ok() ? done->bytes : 0}});
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
