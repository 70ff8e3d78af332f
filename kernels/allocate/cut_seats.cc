// place_cut_seats: the seats of recipes that are defined at a single budget (policies/budgets.md,
// "Seats of cut recipes"). They need the scores of all layers, so they are placed at commit.
#include <algorithm>
#include <queue>

#include "kernels/encode/record_writer.h"
#include "kernels/select/select_op.h"
#include "precis/kernels.h"
#include "precis/record.h"

namespace precis::kernels {
namespace {

// One record in the merge. `ranks[k]` is the best score rank of entry k and the entries after it,
// so that a protected entry with a low score does not delay the entries after it.
struct Source {
  MutableBytes record;
  RecordView view;
  std::vector<std::uint32_t> ranks;
};

Status collect(MutableBytes layer, std::vector<Source>& sources) {
  while (!layer.empty()) {
    std::size_t size = 0;
    PRECIS_ASSIGN(RecordView view, open_record(layer, &size));
    std::vector<std::uint32_t> ranks(view.count);
    std::uint32_t best = 0;
    for (std::uint32_t k = view.count; k-- > 0;) {
      best = std::max(best, score_rank(view.scores[k]));
      ranks[k] = best;
    }
    sources.push_back({layer.first(size), view, std::move(ranks)});
    layer = layer.subspan(size);
  }
  return {};
}

}  // namespace

Status place_cut_seats(std::span<const MutableBytes> layers) {
  std::vector<Source> sources;  // ascending by (layer, head), which breaks ties
  for (const MutableBytes layer : layers) PRECIS_TRY(collect(layer, sources));

  struct Next {
    std::uint32_t rank;
    std::size_t source;
    std::uint32_t index;
    bool operator<(const Next& o) const {
      return rank != o.rank ? rank < o.rank : source > o.source;
    }
  };
  std::priority_queue<Next> queue;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (sources[s].view.count > 0) queue.push({sources[s].ranks[0], s, 0});
  }
  for (std::uint32_t seat = 1; !queue.empty(); ++seat) {
    const Next next = queue.top();
    queue.pop();
    const Source& source = sources[next.source];
    mutable_seats(source.record, source.view)[next.index] = seat;
    const std::uint32_t behind = next.index + 1;
    if (behind < source.view.count) queue.push({source.ranks[behind], next.source, behind});
  }
  return {};
}

}  // namespace precis::kernels
