#include "cachesvc/catalog/faithful.h"

#include <algorithm>

#include "precis/record_format.h"

namespace precis {
namespace {

constexpr double kEqualFrom = 0.95;

// Of the parents' entries, in [0, 1]. `entries`: that their tokens had.
double share_read(const Budget& budget, double entries, const SegmentRow& row,
                  const ModelSpec& model) {
  const auto value = static_cast<double>(budget.value);
  switch (budget.kind) {
    case Budget::Kind::kAll: return 1;
    case Budget::Kind::kRatio: return std::min(1.0, value / kFaithful);
    case Budget::Kind::kEntries: return std::min(1.0, value / row.begin);
    case Budget::Kind::kBytes:
      return std::min(
          1.0,
          value / static_cast<double>(record_entry_bytes(model.head_dim, model.dtype)) / entries);
    case Budget::Kind::kQuality: return 0;
  }
  return 0;
}

}  // namespace

std::uint32_t faithful_ppm(const SegmentRow& row, const SegmentNode* parent,
                           const ModelSpec& model) {
  if (!parent) return kFaithful;
  const double entries = static_cast<double>(row.begin) * model.num_layers * model.num_kv_heads;
  const double read = share_read(row.parent_read.value_or(Budget::all()), entries, row, model);
  const double stored = static_cast<double>(parent->chain_entries) / entries;
  if (read >= kEqualFrom * stored) return parent->faithful_ppm;
  return std::min(parent->faithful_ppm,
                  static_cast<std::uint32_t>(std::min(1.0, read / kEqualFrom) * kFaithful));
}

std::uint32_t faithful_for(const std::optional<Budget>& budget) {
  if (!budget || budget->kind != Budget::Kind::kRatio) return kFaithful;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(budget->value, kFaithful));
}

}  // namespace precis
