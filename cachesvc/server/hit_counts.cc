#include "cachesvc/server/hit_counts.h"

#include "precis/printable.h"

namespace precis {
namespace {

// `model`: null for all. Labels are printable names (Caller::labels()).
std::uint64_t sum_of(const Labeled<std::int64_t>& counter, const std::string& tenant,
                     const std::string* model) {
  const std::string name = printable(tenant), label = model ? printable(*model) : std::string();
  const auto& rows = counter.rows();
  std::int64_t sum = 0;
  for (auto row = rows.lower_bound({name, {}, {}, {}});
       row != rows.end() && row->first.tenant == name; ++row) {
    if (model == nullptr || row->first.model == label) sum += row->second;
  }
  return static_cast<std::uint64_t>(sum);
}

HitCounts counts_of(const Metrics& metrics, const std::string& tenant, const std::string* model) {
  return {sum_of(metrics.hits, tenant, model), sum_of(metrics.hit_tokens, tenant, model)};
}

}  // namespace

HitCounts hits_of(const Metrics& metrics, const std::string& tenant) {
  return counts_of(metrics, tenant, nullptr);
}

HitCounts hits_of(const Metrics& metrics, const std::string& tenant, const std::string& model) {
  return counts_of(metrics, tenant, &model);
}

}  // namespace precis
