#include "kernels/cpu_stages.h"

#include "kernels/allocate/allocate.h"
#include "kernels/check/check.h"
#include "kernels/common/isa.h"
#include "kernels/encode/encode.h"
#include "kernels/score/score.h"
#include "kernels/select/select.h"

namespace precis::kernels {

CpuStages::CpuStages(unsigned threads) : CpuStages(threads, detect_isa()) {}
CpuStages::CpuStages(unsigned threads, Isa isa)
    : pool_(threads), context_{pool_, isa}, name_("cpu (" + std::string(isa_name(isa)) + ")") {}

Status CpuStages::check(const Recipe& recipe, const LayerInput& input) const {
  return check_cpu(context_, recipe, input);
}
Status CpuStages::check_but_rows(const Recipe& recipe, const LayerInput& input) const {
  return check_but_rows_cpu(context_, recipe, input);
}
Status CpuStages::score(const Recipe& recipe, const LayerInput& input, LayerScores& scores) const {
  return score_cpu(context_, recipe, input, scores);
}
Status CpuStages::select(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                         std::uint64_t slots, RetentionOrders& orders) const {
  return select_cpu(context_, recipe, input, scores, slots, orders);
}
Status CpuStages::allocate(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                           const RetentionOrders& orders, std::uint64_t slots,
                           LayerTurns& turns) const {
  return allocate_cpu(context_, recipe, input, scores, orders, slots, turns);
}
Status CpuStages::encode(const LayerInput& input, const LayerScores& scores,
                         const RetentionOrders& orders, std::span<const std::uint32_t> counts,
                         const std::vector<std::vector<std::uint32_t>>& seats,
                         const SegmentId& segment, MutableBytes out, Encoding encoding,
                         Rows rows) const {
  return encode_cpu(context_, input, scores, orders, counts, seats, segment, out, encoding, rows);
}
Status CpuStages::seal(std::span<const MutableBytes> layers) const {
  return seal_cpu(context_, layers);
}

}  // namespace precis::kernels
