#include "cachesvc/catalog/faithful.h"

#include <algorithm>

namespace precis {
namespace {

constexpr double kEqualFrom = 0.95;
constexpr int kPassesMax = 8;

std::uint64_t entries_read(const SegmentRow& row, const SegmentNode& parent) {
  if (row.parent_entries != 0) return row.parent_entries;
  const Budget read = row.parent_read.value_or(Budget::all());
  return read.kind == Budget::Kind::kAll ? parent.chain_entries : 0;
}

// Returns the share at which a reader gets `entries` of a chain that stores more. A segment that
// stores less than the share is read whole, and the others share the rest. Each pass finds more
// such segments and raises the share. If the passes end early, the share is only slightly too
// small.
double share_of(double entries, const SegmentNode& tip, double entries_a_token) {
  double share = entries / (tip.row->end * entries_a_token);
  for (int pass = 0; pass < kPassesMax; ++pass) {
    double left = entries, had = 0;
    for (const SegmentNode* node = &tip; node; node = node->parent) {
      const SegmentRow& row = *node->row;
      const auto stored = static_cast<double>(row.plan.total());
      const double all = (row.end - row.begin) * entries_a_token;
      if (stored <= share * all) {
        left -= stored;
      } else {
        had += all;
      }
    }
    const double next = had > 0 ? left / had : 1;
    if (next <= share) break;
    share = next;
  }
  return share;
}

}  // namespace

std::uint32_t faithful_ppm(const SegmentRow& row, const SegmentNode* parent,
                           const ModelSpec& model) {
  if (!parent) return kFaithful;
  const double equal = static_cast<double>(entries_read(row, *parent)) / kEqualFrom;
  if (equal >= static_cast<double>(parent->chain_entries)) return parent->faithful_ppm;
  const double share = share_of(equal, *parent, 1.0 * model.num_layers * model.num_kv_heads);
  // Rounding must not lower a share that is a whole number of parts.
  return std::min(parent->faithful_ppm,
                  static_cast<std::uint32_t>(std::min(1.0, share) * kFaithful + 1e-6));
}

std::uint32_t faithful_for(const std::optional<Budget>& budget) {
  if (!budget || budget->kind != Budget::Kind::kRatio) return kFaithful;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(budget->value, kFaithful));
}

bool is_as_good(const SegmentRow& stored, const SegmentRow& row) {
  return !stored.trimmed && static_cast<double>(stored.parent_entries) >=
                                kEqualFrom * static_cast<double>(row.parent_entries);
}

}  // namespace precis
