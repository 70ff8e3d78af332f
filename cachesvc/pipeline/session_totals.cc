#include "cachesvc/pipeline/session_totals.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/session_total.h"

namespace precis {
namespace {

// Sessions that wait, of all tenants and of one; further ones wait for their next change.
constexpr std::size_t kSessionsMax = 1024, kSessionsOfTenantMax = 128;
constexpr std::size_t kCurvesMax = 65'536;   // of about 250 bytes
constexpr std::uint64_t kWorthATrim = 8;     // a turn that gives less than this part stays
constexpr std::uint32_t kLeastPpm = 50'000;  // that a trim leaves of a turn's full KV
constexpr std::chrono::seconds kAgain{1};
constexpr int kRoundsMax = 6;  // of a session, for turns that change meanwhile or give too little

// The budget at which the segment stores `entries` of its entries.
Budget budget_of(const SegmentRow& row, std::uint64_t entries) {
  const bool is_part = row.whole_entries != 0;
  const std::uint64_t tokens =
      is_part ? row.whole_end - row.whole_begin : std::uint64_t{row.end} - row.begin;
  const auto whole = static_cast<double>(is_part ? row.whole_entries : row.plan.total());
  const double share = whole / static_cast<double>(tokens * row.plan.counts.size()) *
                       static_cast<double>(entries) / static_cast<double>(row.plan.total());
  constexpr double kAll = 1e6;
  return Budget::ratio_ppm(static_cast<std::uint32_t>(std::clamp(share * kAll, 1.0, kAll)));
}

// A turn that was never trimmed and of which a trim would free next to nothing does not count in a
// share. An example is the first turn if the recipe keeps nearly all its entries (min_entries).
// While a conversation is short, the other turns would lose most of their entries for it.
TotalTurn total_turn(const SessionTurns::Turn& turn, const ModelSpec& model, const Budget& total) {
  const SegmentRow& row = *turn.row;
  const std::uint64_t entries = row.plan.total();
  const auto least = cut_entries_at_most(row, model, Budget::ratio_ppm(kLeastPpm));
  const bool stays = turn.is_held || !least.ok() || *least > entries - entries / kWorthATrim;
  const bool counts = total.kind == Budget::Kind::kBytes || row.trimmed || !stays;
  return {counts ? row.stored_bytes : 0, counts ? row.original_bytes : 0, entries,
          stays ? entries : *least};
}

}  // namespace

void SessionTotals::changed(const Owner& owner, const std::string& session) {
  if (stopped_ || waiting_.size() >= kSessionsMax) return;
  std::size_t of_tenant = 0;
  for (const Waiting& each : waiting_) {
    if (each.owner.tenant != owner.tenant) continue;
    if (each.session == session || ++of_tenant >= kSessionsOfTenantMax) return;
  }
  waiting_.push_back({owner, session});
  if (std::exchange(busy_, true)) return;
  spawn(work());
}

void SessionTotals::stop() {
  stopped_ = true;
  waiting_.clear();
  again_.reset();
}

bool SessionTotals::others_wait(const Waiting& session) {
  if (!parts_.consolidator.others_wait()) return false;
  later(session);
  return true;
}

// Tries again in a while: it may have been the session's last turn.
void SessionTotals::later(const Waiting& session) {
  if (stopped_ || later_.size() >= kSessionsMax) return;
  later_.push_back(session);
  if (again_) return;
  again_ = parts_.loop.after(kAgain, [this] {
    again_.reset();
    for (const Waiting& each : std::exchange(later_, {})) changed(each.owner, each.session);
  });
}

Task<void> SessionTotals::work() {
  while (!waiting_.empty()) {
    const Waiting next = take_next();
    co_await hold(next);
  }
  busy_ = false;
}

// The oldest of another tenant than the last one, if there is any.
SessionTotals::Waiting SessionTotals::take_next() {
  auto next = std::ranges::find_if(
      waiting_, [&](const Waiting& each) { return each.owner.tenant != last_tenant_; });
  if (next == waiting_.end()) next = waiting_.begin();
  Waiting taken = std::move(*next);
  waiting_.erase(next);
  last_tenant_ = taken.owner.tenant;
  return taken;
}

Task<void> SessionTotals::hold(const Waiting& session) {
  for (int round = 0; round < kRoundsMax; ++round) {
    Plan next =
        co_await run_on(parts_.storage, parts_.loop, session.owner, [&] { return plan(session); });
    if (next.unknown.empty() && next.trims.empty()) co_return;
    const bool more = co_await carry_out(session, std::move(next));
    if (!more) co_return;
  }
}

SessionTotals::Plan SessionTotals::plan(const Waiting& session) {
  Plan plan;
  const std::string& tenant = session.owner.tenant;
  const auto path = parts_.catalog.session_turns(tenant, session.session);
  if (!path.ok() || !path->total || path->turns.empty()) return plan;
  const auto model = parts_.catalog.model(tenant, path->turns.back().row->model);
  if (!model.ok()) return plan;
  std::vector<TotalTurn> turns;
  for (const SessionTurns::Turn& turn : path->turns) {
    turns.push_back(total_turn(turn, *model, *path->total));
  }
  const bool were_trimmed = std::ranges::any_of(
      path->turns, [](const auto& turn) { return turn.row->trimmed.has_value(); });
  if (!were_trimmed && all_fit(turns, *path->total)) return plan;  // no scores need to be read
  plan.total = path->total;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].least_entries >= turns[i].entries) continue;
    turns[i].curve = curve_of(*path->turns[i].row);
    if (!turns[i].curve) plan.unknown.push_back(path->turns[i].row);
  }
  if (!plan.unknown.empty()) return plan;
  for (const TotalTrim& trim : trims_for(turns, *path->total)) {
    const SegmentRow& row = *path->turns[trim.turn].row;
    plan.trims.push_back(
        {row.id, path->turns[trim.turn + 1].row->id, budget_of(row, trim.entries)});
  }
  return plan;
}

Task<bool> SessionTotals::carry_out(const Waiting& session, Plan plan) {
  for (const Catalog::Row& row : plan.unknown) {
    if (stopped_ || others_wait(session)) co_return false;
    auto curve = co_await parts_.trim.scores(session.owner, row);
    if (!may_go_on(session, curve.status())) co_return false;
    if (curve.ok()) remember(*row, std::move(*curve));
  }
  for (const Trim& trim : plan.trims) {
    if (stopped_ || others_wait(session)) co_return false;
    // Many trims take long, and each is final.
    const auto now = parts_.catalog.session(session.owner.tenant, session.session);
    if (!now.ok() || now->pinned || now->total != plan.total) co_return false;
    msg::TrimPrefix request;
    request.segment = trim.turn;
    request.budget = trim.budget;
    request.durability = Durability::kMemory;  // a trim is at least as durable as its segment
    const auto done = co_await parts_.trim.run(session.owner, request);
    if (!may_go_on(session, done.status())) co_return false;
    if (done.ok()) parts_.consolidator.committed(session.owner, trim.next);
  }
  co_return true;
}

bool SessionTotals::may_go_on(const Waiting& session, const Status& done) {
  switch (done.code()) {
    case StatusCode::kOk:
    case StatusCode::kConflict:  // the turn was put again, consolidated or removed meanwhile
    case StatusCode::kNotFound: return true;
    case StatusCode::kOutOfSpace:
    case StatusCode::kRejected: later(session); return false;
    default: break;
  }
  if (!stopped_) {
    parts_.log.warn("a session can't be trimmed to its total",
                    {{"session", session.session}, {"status", done.to_string()}});
  }
  return false;
}

const ScoreCurve* SessionTotals::curve_of(const SegmentRow& row) {
  const auto found = known_.find(row.id);
  if (found == known_.end()) return nullptr;
  Known& known = found->second;
  if (known.begin > row.begin && !take_former(row, known)) return nullptr;
  // Otherwise it was split, or put again with more.
  const bool is_same =
      known.begin == row.begin && known.end == row.end && known.curve.entries() >= row.plan.total();
  return is_same ? &known.curve : nullptr;
}

// A consolidated segment has the id of its last former one. False if not all of them are known.
bool SessionTotals::take_former(const SegmentRow& row, Known& known) {
  std::vector<const ScoreCurve*> former{&known.curve};
  const Known* first = &known;
  while (first->begin > row.begin) {
    const auto before = known_.find(first->parent);
    if (before == known_.end() || before->second.end != first->begin) return false;
    first = &before->second;
    former.push_back(&first->curve);
  }
  if (first->begin != row.begin) return false;
  ScoreCurve together = ScoreCurve::together(former);
  known = {row.parent, row.begin, row.end, std::move(together), known.number};
  return true;
}

// The older half is forgotten at the limit. A session's path has far fewer segments than the other
// half, so a session whose scores were just read finds them all.
void SessionTotals::remember(const SegmentRow& row, ScoreCurve curve) {
  known_.insert_or_assign(row.id,
                          Known{row.parent, row.begin, row.end, std::move(curve), ++curves_read_});
  if (known_.size() <= kCurvesMax) return;
  std::erase_if(known_, [this](const auto& each) {
    return each.second.number + kCurvesMax / 2 < curves_read_;
  });
}

}  // namespace precis
