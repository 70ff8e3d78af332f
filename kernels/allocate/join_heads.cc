#include "kernels/allocate/join_heads.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/allocate/allocate_op.h"
#include "kernels/allocate/contest.h"
#include "kernels/allocate/protected_counts.h"
#include "kernels/allocate/table_turns.h"
#include "kernels/allocate/turns.h"

namespace precis::kernels {
namespace {

// Competitor c is head c % num_kv_heads of the (c / num_kv_heads)-th layer seen, so that ties go to
// the lower layer, then to the lower head.
class CompetingHeadsJoiner final : public Joiner {
 public:
  CompetingHeadsJoiner(const Recipe& recipe, const SegmentDims& dims, std::uint64_t entries)
      : recipe_(recipe),
        dims_(dims),
        entries_(entries),
        guarded_(protected_counts(recipe, dims)),
        most_guarded_(*std::ranges::max_element(guarded_)),
        ranks_(dims.num_layers),
        counts_(dims.num_layers) {}

  std::uint64_t slots_wanted(std::uint32_t layer) const override {
    return std::min(entries_, std::uint64_t{dims_.num_kv_heads} * dims_.tokens(layer));
  }

  // The cascade keeps the most entries that the layers seen so far can hold in the end. Layers that
  // are not added yet have guarantees, too, so heads compete only for the seats that remain after
  // the guarantees of all heads. A guarantee computed from the layers seen alone would be larger,
  // and adding layers would then have to increase counts again.
  void add(std::uint32_t layer, LayerTurns turns) override {
    ranks_[layer] = std::move(turns.ranks);
    seen_.push_back(layer);
    std::sort(seen_.begin(), seen_.end());
    const bool all_seen = seen_.size() == dims_.num_layers;
    const std::vector<std::uint64_t> kept = all_seen ? kept_at_last() : kept_at_most();
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(i * dims_.num_kv_heads);
      counts_[seen_[i]].assign(first, first + dims_.num_kv_heads);
    }
    for (const std::uint32_t seen : seen_) {
      for (std::uint32_t h = 0; h < dims_.num_kv_heads; ++h) {
        const std::uint32_t count = counts_[seen][h];
        auto& ranks = ranks_[seen][h];
        const std::size_t ranked = count - std::min(count, guarded_[seen]);
        if (ranks.size() > ranked) ranks.resize(ranked);
      }
    }
  }

  const std::vector<std::uint32_t>& counts(std::uint32_t layer) const override {
    return counts_[layer];
  }

  std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const override {
    if (seen_.size() < dims_.num_layers || recipe_.is_cut()) return {};
    if (seats_.empty()) {
      seats_.resize(std::size_t{dims_.num_layers} * dims_.num_kv_heads);
      std::uint32_t seat = 0;
      for (const std::uint32_t c : takers()) seats_[c].push_back(++seat);
    }
    const auto first = seats_.begin() + static_cast<std::ptrdiff_t>(layer) * dims_.num_kv_heads;
    return {first, first + dims_.num_kv_heads};
  }

 private:
  // The counts of all heads, once every layer is added.
  std::vector<std::uint64_t> kept_at_last() const {
    std::vector<std::uint64_t> kept(std::size_t{dims_.num_layers} * dims_.num_kv_heads);
    for (const std::uint32_t c : takers()) ++kept[c];
    return kept;
  }

  // The counts of the heads seen: their guarantee at this budget, and the seats that they win among
  // the seats that remain after the guarantees of all heads.
  std::vector<std::uint64_t> kept_at_most() const {
    std::vector<std::uint64_t> kept(seen_.size() * dims_.num_kv_heads);
    const auto protectors = uniform_turns(guarded_, dims_.num_kv_heads, entries_);
    for (const std::uint32_t c : protectors) {
      const auto at = std::ranges::lower_bound(seen_, c / dims_.num_kv_heads);
      if (at == seen_.end() || *at != c / dims_.num_kv_heads) continue;
      ++kept[static_cast<std::size_t>(at - seen_.begin()) * dims_.num_kv_heads +
             c % dims_.num_kv_heads];
    }
    const std::uint64_t heads = std::uint64_t{dims_.num_layers} * dims_.num_kv_heads;
    const std::uint64_t ranked = entries_ - protectors.size();
    // If the budget ends within a round, some heads have their next guarantee and some do not.
    const std::uint64_t sure =
        guaranteed_entries(recipe_, most_guarded_, (ranked + heads - 1) / heads);
    const std::uint64_t whole = guaranteed_entries(recipe_, most_guarded_, ranked / heads);
    std::uint64_t reserved = 0;
    for (std::uint32_t l = 0; l < dims_.num_layers; ++l) {
      const std::uint64_t most = dims_.tokens(l) - guarded_[l];
      reserved += dims_.num_kv_heads * std::min(most, whole);
    }
    Ranks open;  // behind the guarantee
    for (const std::uint32_t layer : seen_) {
      for (const auto& ranks : ranks_[layer]) {
        const std::size_t skip = std::min<std::size_t>(sure, ranks.size());
        open.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(skip), ranks.end());
        kept[open.size() - 1] += skip;
      }
    }
    const auto won = flat_counts(open, ranked - std::min(ranked, reserved));
    for (std::size_t c = 0; c < kept.size(); ++c) kept[c] += won[c];
    return kept;
  }

  // The competitor that takes each seat, among the layers seen.
  std::vector<std::uint32_t> takers() const {
    Ranks ranks;
    std::vector<std::uint32_t> guarded;
    for (const std::uint32_t layer : seen_) {
      guarded.push_back(guarded_[layer]);
      ranks.insert(ranks.end(), ranks_[layer].begin(), ranks_[layer].end());
    }
    std::vector<std::uint32_t> takers = uniform_turns(guarded, dims_.num_kv_heads, entries_);
    const auto ranked = contest(recipe_, ranks, most_guarded_, entries_ - takers.size());
    takers.insert(takers.end(), ranked.begin(), ranked.end());
    return takers;
  }

  const Recipe recipe_;
  const SegmentDims dims_;
  const std::uint64_t entries_;
  const std::vector<std::uint32_t> guarded_;        // [num_layers], protected entries of each head
  const std::uint32_t most_guarded_;                // in any layer: what guarantees count
  std::vector<Ranks> ranks_;                        // [num_layers]
  std::vector<std::vector<std::uint32_t>> counts_;  // [num_layers][num_kv_heads]
  std::vector<std::uint32_t> seen_;                 // ascending
  // [num_layers * num_kv_heads]; computed by the first call of seats() after every layer is added
  mutable std::vector<std::vector<std::uint32_t>> seats_;
};

class TabledHeadsJoiner final : public Joiner {
 public:
  TabledHeadsJoiner(const Recipe& recipe, const SegmentDims& dims, std::uint64_t entries,
                    const Profile& profile)
      : is_cut_(recipe.is_cut()),
        num_kv_heads_(dims.num_kv_heads),
        seats_(dims.num_layers),
        counts_(dims.num_layers) {
    const std::vector<std::uint32_t> guarded = protected_counts(recipe, dims);
    for (auto& layer : seats_) layer.resize(num_kv_heads_);
    std::uint32_t seat = 0;
    const auto deal = [&](const std::vector<std::uint32_t>& takers) {
      for (const std::uint32_t c : takers) {
        seats_[c / num_kv_heads_][c % num_kv_heads_].push_back(++seat);
      }
    };
    deal(uniform_turns(guarded, num_kv_heads_, entries));
    deal(table_turns(profile, dims, guarded, entries - seat));
    for (std::uint32_t l = 0; l < dims.num_layers; ++l) {
      for (const auto& head : seats_[l]) {
        counts_[l].push_back(static_cast<std::uint32_t>(head.size()));
      }
    }
  }

  std::uint64_t slots_wanted(std::uint32_t layer) const override {
    return std::accumulate(counts_[layer].begin(), counts_[layer].end(), std::uint64_t{0});
  }
  void add(std::uint32_t, LayerTurns) override {}
  const std::vector<std::uint32_t>& counts(std::uint32_t layer) const override {
    return counts_[layer];
  }
  std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const override {
    return is_cut_ ? std::vector<std::vector<std::uint32_t>>() : seats_[layer];
  }

 private:
  const bool is_cut_;
  const std::uint32_t num_kv_heads_;
  std::vector<std::vector<std::vector<std::uint32_t>>> seats_;  // [num_layers][num_kv_heads]
  std::vector<std::vector<std::uint32_t>> counts_;
};

}  // namespace

std::unique_ptr<Joiner> join_competing_heads(const Recipe& recipe, const SegmentDims& dims,
                                             std::uint64_t entries) {
  return std::make_unique<CompetingHeadsJoiner>(recipe, dims, entries);
}

std::unique_ptr<Joiner> join_tabled_heads(const Recipe& recipe, const SegmentDims& dims,
                                          std::uint64_t entries, const Profile& profile) {
  return std::make_unique<TabledHeadsJoiner>(recipe, dims, entries, profile);
}

}  // namespace precis::kernels
