#include "cachesvc/pipeline/session_totals.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/session_total.h"

namespace precis {
namespace {

constexpr std::size_t kSessionsMax = 1024;  // that wait; others wait for their next turn

// Whether a trim to the level removes entries. The recipe, which says so exactly, is read only if
// the budget may be above the level.
bool can_shrink(const SegmentRow& row, const ModelSpec& model, const Budget& level) {
  const Budget budget = row.trimmed.value_or(row.budget);
  if (budget.kind == Budget::Kind::kRatio && budget.value <= level.value) return false;
  const auto left = cut_entries_at_most(row, model, level);
  return left.ok() && *left < row.plan.total();
}

}  // namespace

void SessionTotals::changed(const Owner& owner, const std::string& session) {
  if (stopped_ || waiting_.size() >= kSessionsMax) return;
  const auto is_it = [&](const Waiting& each) {
    return each.session == session && each.owner.tenant == owner.tenant;
  };
  if (std::ranges::none_of(waiting_, is_it)) waiting_.push_back({owner, session, {}});
  if (std::exchange(busy_, true)) return;
  spawn(work());
}

void SessionTotals::stop() {
  stopped_ = true;
  waiting_.clear();
}

Task<void> SessionTotals::work() {
  while (!waiting_.empty()) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const bool more = co_await trim_one(next);
    if (more && !stopped_) waiting_.push_back(std::move(next));
  }
  busy_ = false;
}

Task<bool> SessionTotals::trim_one(Waiting& waiting) {
  const std::string& tenant = waiting.owner.tenant;
  const auto path = parts_.catalog.session_turns(tenant, waiting.session);
  if (!path.ok() || !path->total || path->turns.empty()) co_return false;
  const auto model = parts_.catalog.model(tenant, path->turns.back().row->model);
  if (!model.ok()) co_return false;
  std::vector<TotalTurn> turns;
  for (const SessionTurns::Turn& turn : path->turns) {
    const SegmentRow& row = *turn.row;
    turns.push_back(
        {row.stored_bytes, row.original_bytes, turn.is_held || waiting.uncut.contains(row.id),
         [&row, &spec = *model](const Budget& level) { return can_shrink(row, spec, level); }});
  }
  const auto next = next_trim(turns, *path->total);
  if (!next) co_return false;
  msg::TrimPrefix request;
  request.segment = path->turns[next->turn].row->id;
  request.budget = next->level;
  request.durability = Durability::kMemory;  // a trim is at least as durable as its segment
  const auto done = co_await parts_.trim.run(waiting.owner, request);
  // It was put again, consolidated or removed meanwhile, or frees nothing.
  const bool changed = done.status().code() == StatusCode::kConflict ||
                       done.status().code() == StatusCode::kNotFound;
  if (changed || (done.ok() && done->freed_bytes == 0)) waiting.uncut.insert(request.segment);
  const bool is_full = done.status().code() == StatusCode::kOutOfSpace ||
                       done.status().code() == StatusCode::kRejected;
  if (!done.ok() && !changed) {
    if (is_full) co_return false;
    parts_.log.warn("a session can't be trimmed to its total",
                    {{"session", waiting.session}, {"status", done.status().to_string()}});
    co_return false;
  }
  parts_.consolidator.committed(waiting.owner, path->turns[next->turn + 1].row->id);
  co_return true;
}

}  // namespace precis
