#include "cachesvc/server/put_requests.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cachesvc/server/owner_check.h"
#include "cachesvc/server/shard_keeper.h"
#include "cachesvc/shared/uploads.h"
#include "precis/limits.h"

namespace precis {
namespace {

// The stages of a put, and the names of their spans.
constexpr std::array<std::pair<PutStage, const char*>, 3> kStages{
    {{PutStage::kStage, "stage"}, {PutStage::kCompress, "compress"}, {PutStage::kWrite, "write"}}};

// Keeps the latest ended puts, as many as a connection may have in progress.
template <typename Ended>
void keep_latest(Ended& ended) {
  while (ended.size() > limits::kPutsPerConnectionMax) ended.pop_front();
}

}  // namespace

PutRequests::PutRequests(const Caller& caller)
    : caller_(caller),
      path_(caller.parts.put_path),
      part_(caller.parts.admission.puts, caller.owner()) {}

PutRequests::~PutRequests() {
  abort_all();
  puts_.clear();
  caller_.parts.memory.retry();
}

// Other writers of a joint put may wait for this client's part. The abort tells them.
void PutRequests::abort_all() {
  for (auto& [id, open] : puts_) {
    if (!path_.abort(*open.put).ok()) continue;
    end_trace(open, open.put->failure);
    open.trace.reset();  // the puts may be aborted again
  }
}

void PutRequests::end_trace(const WriterPut& open, const Status& outcome) const {
  if (!open.trace) return;
  Trace& trace = *open.trace;
  if (!open.put) return trace.end("precis.put", caller_.labels(""), outcome.code(), {});
  const OpenPut& put = *open.put;
  const Clock::Time now = caller_.parts.clock.now();
  for (const auto& [stage, name] : kStages) {
    const auto worked = put.times ? put.times->of(stage, now) : std::nullopt;
    if (worked) trace.stage(name, worked->begin, worked->end);
  }
  if (open.commit) trace.stage("commit", open.commit->begin, open.commit->end);
  trace.end("precis.put", caller_.labels(put.model.name), outcome.code(),
            {{"tokens", put.num_tokens()}, {"bytes", put.row.stored_bytes}});
}

Result<std::shared_ptr<OpenPut>> PutRequests::find(std::uint64_t put) const {
  const auto it = puts_.find(put);
  if (it != puts_.end()) return it->second.put;
  if (std::ranges::find(silent_, put) != silent_.end()) {
    return Status::unavailable(
        "put " + std::to_string(put) +
        " was given up: it received nothing while other requests waited for memory; put again");
  }
  return Status::not_found("put " + std::to_string(put) +
                           " is not in progress on this connection: it has ended, or never began");
}

std::size_t PutRequests::give_up_silent(std::chrono::steady_clock::duration silence) {
  const auto since = caller_.parts.clock.now() - silence;
  const std::size_t given_up = std::erase_if(puts_, [&](const auto& row) {
    OpenPut& put = *row.second.put;
    if (!PutPath::is_silent(put, since) || !path_.abort(put).ok()) return false;
    end_trace(row.second, put.failure);
    silent_.push_back(row.first);
    return true;
  });
  keep_latest(silent_);
  caller_.parts.metrics.puts_silent += static_cast<std::int64_t>(given_up);
  if (given_up > 0) caller_.parts.memory.retry();
  return given_up;
}

Task<Answer> PutRequests::on(msg::BeginPut request) {
  const auto one_more = [this]() -> Status {
    if (puts_.size() < limits::kPutsPerConnectionMax) return {};
    return Status::rejected("this connection has " + std::to_string(puts_.size()) +
                            " puts in progress, which is the limit; commit or abort one");
  };
  PRECIS_CO_TRY(one_more());
  PRECIS_CO_TRY(caller_.check_uploads());
  PRECIS_CO_ASSIGN(const auto shard, owned_shard(caller_, request));
  WriterPut open;
  open.shard = shard;
  if (shard && caller_.parts.shards != nullptr) {
    open.keeps = caller_.parts.shards->begin_put(shard->number);
    PRECIS_CO_TRY(still_owned(caller_, shard));
  }
  PRECIS_CO_ASSIGN(open.counted, Quota::take(part_, 1));
  open.trace = caller_.parts.tracer.begin(request.traceparent);
  auto put = co_await path_.begin(caller_.tenant, std::move(request), caller_.connection,
                                  open.trace != nullptr, number_of(shard));
  put = found_or_moved(caller_, shard, std::move(put));
  if (!put.ok()) end_trace(open, put.status());
  PRECIS_CO_ASSIGN(open.put, std::move(put));
  // Meanwhile other puts may have begun, or the client may have left.
  const Status wanted = caller_.gone ? Status::canceled("the client has left") : one_more();
  if (!wanted.ok()) {
    static_cast<void>(path_.abort(*open.put));
    end_trace(open, wanted);
    co_return wanted;
  }
  msg::PutBegun begun = PutPath::describe(*open.put);
  begun.put = next_put_++;
  puts_.emplace(begun.put, std::move(open));
  co_return msg::ReplyBody(std::move(begun));
}

Task<Answer> PutRequests::on(msg::PushLayer request) {
  PRECIS_CO_ASSIGN(auto put, find(request.put));
  co_return answer(co_await path_.push(std::move(put), std::move(request), caller_.connection));
}

// If a segment is gone right after its commit, this node may have given up its shard.
Status PutRequests::moved_if_gone(const std::optional<HeldShard>& shard,
                                  const Status& status) const {
  const bool moves = shard && caller_.parts.shards != nullptr;
  if (!moves || status.code() != StatusCode::kNotFound) return status;
  PRECIS_TRY(still_owned(caller_, shard));
  return status;
}

Task<Answer> PutRequests::on(msg::CommitPut request) {
  PRECIS_CO_TRY(caller_.check(request.durability));
  // The client may have stopped waiting for this commit, and now asks again.
  const auto known = std::ranges::find(committed_, request.put, &CommittedPut::put);
  if (known != committed_.end()) {
    const SegmentId segment = known->segment;
    const auto shard = known->shard;
    const Status hardened = co_await caller_.stored([&] {
      return caller_.parts.catalog.harden(caller_.tenant.name, segment, request.durability);
    });
    PRECIS_CO_TRY(moved_if_gone(shard, hardened));
    if (request.durability == Durability::kShared) {
      PRECIS_CO_TRY(co_await caller_.shared(shard));
    }
    auto info = caller_.parts.catalog.info(caller_.tenant.name, segment, /*with_plan=*/true);
    PRECIS_CO_TRY(moved_if_gone(shard, info.status()));
    co_return msg::ReplyBody(caller_.with_tier(std::move(info).value()));
  }
  PRECIS_CO_ASSIGN(auto put, find(request.put));
  const JointPut::Writer writer = &puts_.at(request.put);  // only names the writer
  const Clock::Time put_began = put->begun, began = caller_.parts.clock.now();
  const RequestLabels labels = caller_.labels(put->model.name);
  const Uploads* const uploads = caller_.parts.uploads;
  // As held at the begin: a commit that is asked for again must learn what became of the first.
  const std::optional<HeldShard> shard = puts_.at(request.put).shard;
  auto stored =
      co_await path_.commit(std::move(put), writer, request.durability, request.prefill_seconds);
  if (const Status moved = moved_if_gone(shard, stored.status()); !stored.ok()) stored = moved;
  // If much waits to be copied, each put waits for its own copy, so that the queue does not grow.
  const bool waits =
      request.durability == Durability::kShared || (uploads != nullptr && uploads->is_full());
  if (stored.ok() && waits) {
    const Status copied = co_await caller_.shared(shard);
    if (request.durability == Durability::kShared && !copied.ok()) stored = copied;
  }
  // Meanwhile another commit of the same put may have ended it, or an abort while it waited for
  // other writers or for its copy.
  const auto open = puts_.find(request.put);
  const bool is_open = open != puts_.end();
  if (is_open && open->second.trace) open->second.commit = {began, caller_.parts.clock.now()};
  PRECIS_CO_ASSIGN(auto info, std::move(stored));
  caller_.observe(caller_.parts.metrics.commit_seconds, labels, began);
  caller_.observe(caller_.parts.metrics.put_seconds, labels, put_began);
  if (is_open) {
    end_trace(open->second, Status());
    puts_.erase(open);
  }
  if (std::ranges::find(committed_, request.put, &CommittedPut::put) == committed_.end()) {
    committed_.push_back({request.put, info.id, shard});
  }
  keep_latest(committed_);
  if (!info.parent.is_null()) {
    caller_.parts.consolidator.committed(caller_.tenant.owner(nullptr), info.id);
  }
  co_return msg::ReplyBody(caller_.with_tier(std::move(info)));
}

Task<Answer> PutRequests::on(msg::AbortPut request) {
  PRECIS_CO_ASSIGN(auto put, find(request.put));
  PRECIS_CO_TRY(path_.abort(*put));
  end_trace(puts_.at(request.put), put->failure);
  puts_.erase(request.put);
  caller_.parts.memory.retry();
  co_return answer(Status());
}

}  // namespace precis
