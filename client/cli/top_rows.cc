#include "client/cli/top_rows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace precis::cli {
namespace {

// A counter that fell belongs to a new object of that name, so its rate counts as 0.
double per_second(std::uint64_t before, std::uint64_t now, double seconds) {
  return now > before ? static_cast<double>(now - before) / seconds : 0;
}

bool is_larger(const Consumer& a, const Consumer& b) {
  const double of_a = a.hits_per_second.value_or(0), of_b = b.hits_per_second.value_or(0);
  if (of_a != of_b) return of_a > of_b;
  if (a.stored_bytes != b.stored_bytes) return a.stored_bytes > b.stored_bytes;
  return a.name < b.name;
}

}  // namespace

Consumers tenant_consumers(std::span<const msg::TenantRow> tenants) {
  Consumers all{true, {}};
  for (const msg::TenantRow& row : tenants) {
    all.rows.push_back({row.name, row.stored_bytes, row.hits, row.hit_tokens, row.puts, {}, {}});
  }
  return all;
}

Consumers model_consumers(std::span<const msg::ModelRow> models) {
  std::map<std::string, Consumer> by_name;
  for (const msg::ModelRow& row : models) {
    Consumer& consumer = by_name[row.model.name];
    consumer.name = row.model.name;
    consumer.stored_bytes += row.stored_bytes;
    // Each row of the name has the hits of all of them.
    consumer.hits = row.hits;
    consumer.hit_tokens = row.hit_tokens;
  }
  Consumers all;
  for (auto& [name, consumer] : by_name) all.rows.push_back(std::move(consumer));
  return all;
}

void set_rates(const Consumers* before, double seconds, Consumers& now) {
  std::map<std::string, const Consumer*> known;
  if (before && before->are_tenants == now.are_tenants) {
    for (const Consumer& row : before->rows) known[row.name] = &row;
  }
  const Consumer at_start{};
  for (Consumer& row : now.rows) {
    const auto found = known.find(row.name);
    const Consumer* const earlier = !before                ? &at_start
                                    : found != known.end() ? found->second
                                                           : nullptr;
    row.hits_per_second.reset();
    row.hit_tokens_per_second.reset();
    if (!earlier || seconds <= 0) continue;
    row.hits_per_second = per_second(earlier->hits, row.hits, seconds);
    row.hit_tokens_per_second = per_second(earlier->hit_tokens, row.hit_tokens, seconds);
  }
  std::ranges::sort(now.rows, is_larger);
}

Json consumers_json(const Consumers& consumers) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json list = Json::array();
  for (const Consumer& row : consumers.rows) {
    Json json = {{"name", row.name},
                 {"stored_bytes", row.stored_bytes},
                 {"hits_per_second", or_null(row.hits_per_second)},
                 {"hit_tokens_per_second", or_null(row.hit_tokens_per_second)}};
    if (consumers.are_tenants) json["puts"] = row.puts;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace precis::cli
