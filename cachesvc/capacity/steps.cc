#include "cachesvc/capacity/steps.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace precis {
namespace {

// A trim rewrites what it leaves, so it frees at least this part of the segment.
constexpr std::uint64_t kWorthATrim = 8;

// The bytes of a candidate that keeps this share of its full entries. Headers do not shrink.
std::uint64_t bytes_at(const Candidate& c, double keep) {
  const auto left = std::max(static_cast<std::uint64_t>(keep * static_cast<double>(c.full_entries)),
                             c.least_entries);
  const std::uint64_t gone = c.entries > left ? c.entries - left : 0;
  return c.stored_bytes - std::min(c.stored_bytes, gone * c.entry_bytes);
}

class Chooser {
 public:
  Chooser(std::span<const Candidate> candidates, std::span<const double> ladder,
          CapacityPolicy policy, bool with_hints)
      : candidates_(candidates), ladder_(ladder), policy_(policy), state_(candidates.size()) {
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& c = candidates_[i];
      State& s = state_[i];
      s.keep = c.full_entries == 0
                   ? 0
                   : static_cast<double>(c.entries) / static_cast<double>(c.full_entries);
      s.bytes = c.stored_bytes;
      s.worth_a_second = with_hints
                             ? reuse_rate(c.use) * prefill_worth(c.said_seconds, c.prefill_seconds)
                             : reuse_rate(without_hints(c.use)) * c.prefill_seconds;
      if (c.parent) ++state_[*c.parent].children;
    }
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) offer(i);
  }

  // `to_free`: the bytes that each owner gives up. If it has one element, owners do not matter.
  std::vector<CapacityStep> run(std::vector<std::uint64_t> to_free) {
    std::vector<std::uint32_t> changed;  // in the order of their last step
    auto unmet = std::ranges::count_if(to_free, [](std::uint64_t bytes) { return bytes > 0; });
    while (unmet > 0 && !offers_.empty()) {
      const Offer best = offers_.top();
      offers_.pop();
      State& s = state_[best.candidate];
      if (best.made != s.offers) continue;  // a newer offer replaced it
      const Candidate& c = candidates_[best.candidate];
      std::uint64_t& left = to_free[to_free.size() == 1 ? 0 : c.owner];
      if (left == 0) continue;  // its owner has given up enough
      const std::uint64_t bytes = best.keep > 0 ? bytes_at(c, best.keep) : 0;
      left -= std::min(left, s.bytes - bytes);
      if (left == 0) --unmet;
      s.bytes = bytes;
      s.keep = best.keep;
      changed.push_back(best.candidate);
      if (best.keep > 0) {
        offer(best.candidate);
        continue;
      }
      s.dropped = true;
      if (c.parent) {
        --state_[*c.parent].children;
        offer(*c.parent);
      }
    }
    return last_steps(changed);
  }

 private:
  struct State {
    double keep = 0, worth_a_second = 0;
    std::uint64_t bytes = 0;
    std::uint32_t children = 0, offers = 0;
    bool dropped = false;
  };
  // A change that a candidate offers, and what it costs: expected seconds of prefill lost per
  // second and byte freed, or the time of its last use.
  struct Offer {
    double cost = 0, keep = 0;
    std::uint32_t candidate = 0, made = 0;
    bool operator<(const Offer& other) const {  // the cheapest is the top of the queue
      return cost != other.cost ? cost > other.cost : candidate > other.candidate;
    }
  };

  void offer(std::uint32_t i) {
    const Candidate& c = candidates_[i];
    State& s = state_[i];
    if (c.held || s.dropped) return;
    std::optional<Offer> best;
    const auto consider = [&](double cost, double keep) {
      if (!best || cost < best->cost) best = Offer{cost, keep, i, 0};
    };
    if (policy_ == CapacityPolicy::kLru) {
      if (s.children == 0) consider(-c.use.idle_s, 0);
    } else {
      if (s.children == 0) consider(cost_of(i, 0, s.bytes), 0);
      const auto rung = std::ranges::find_if(ladder_, [&](double keep) {
        const std::uint64_t left = bytes_at(c, keep);
        return keep < s.keep && left < s.bytes && s.bytes - left >= s.bytes / kWorthATrim;
      });
      if (c.trimmable && rung != ladder_.end()) {
        consider(cost_of(i, *rung, s.bytes - bytes_at(c, *rung)), *rung);
      }
    }
    if (!best) return;
    best->made = ++s.offers;
    offers_.push(*best);
  }

  double cost_of(std::uint32_t i, double keep, std::uint64_t freed_bytes) const {
    const State& s = state_[i];
    const auto worth = [share = candidates_[i].visible_share](double kept) {
      return quality_worth(std::min(1.0, kept / share));
    };
    const double lost = s.worth_a_second * (worth(s.keep) - worth(keep));
    return freed_bytes == 0 ? lost : lost / static_cast<double>(freed_bytes);
  }

  // The state that each changed candidate ends in, in the order in which it got there.
  std::vector<CapacityStep> last_steps(const std::vector<std::uint32_t>& changed) {
    std::vector<CapacityStep> steps;
    std::vector<bool> seen(candidates_.size());
    for (auto i = changed.rbegin(); i != changed.rend(); ++i) {
      if (seen[*i]) continue;
      seen[*i] = true;
      const State& s = state_[*i];
      steps.push_back({*i, s.dropped ? 0 : s.keep, candidates_[*i].stored_bytes - s.bytes});
    }
    std::ranges::reverse(steps);
    return steps;
  }

  const std::span<const Candidate> candidates_;
  const std::span<const double> ladder_;
  const CapacityPolicy policy_;
  std::vector<State> state_;
  std::priority_queue<Offer> offers_;
};

}  // namespace

std::vector<CapacityStep> choose_steps(std::span<const Candidate> candidates,
                                       std::span<const double> ladder, CapacityPolicy policy,
                                       std::uint64_t bytes_to_free) {
  const auto choose = [&](bool with_hints, std::vector<std::uint64_t> to_free) {
    return Chooser(candidates, ladder, policy, with_hints).run(std::move(to_free));
  };
  std::uint32_t owners = 1;
  for (const Candidate& c : candidates) owners = std::max(owners, c.owner + 1);
  if (owners == 1) return choose(true, {bytes_to_free});
  std::vector<std::uint64_t> of_each(owners);
  for (const CapacityStep& step : choose(false, {bytes_to_free})) {
    of_each[candidates[step.candidate].owner] += step.freed_bytes;
  }
  return choose(true, std::move(of_each));
}

}  // namespace precis
