// The consumers that `precisctl top` lists: tenants, or the models of one tenant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cli/json.h"
#include "precis/client.h"

namespace precis::cli {

struct Consumer {
  std::string name;
  std::uint64_t stored_bytes = 0;
  std::uint64_t hits = 0, hit_tokens = 0;  // since the service started
  std::uint64_t puts = 0;                  // in progress; counted for tenants only
  // Between two readings; none before set_rates(), and for one that the first reading lacks.
  std::optional<double> hits_per_second, hit_tokens_per_second;
};

struct Consumers {
  bool are_tenants = false;  // otherwise models
  std::vector<Consumer> rows;
};
Consumers tenant_consumers(std::span<const msg::TenantRow> tenants);
// Models of one name are one row, because the service counts their hits together.
Consumers model_consumers(std::span<const msg::ModelRow> models);

// Sets the rates of `now`, `seconds` after `before`, and sorts it: the most hits per second first,
// then the most stored bytes, then by name. `before` null: the service started in between, and its
// counters with it. There are no rates if no time has passed, or if one has tenants and the other
// models.
void set_rates(const Consumers* before, double seconds, Consumers& now);

// A list of objects: name, stored_bytes, hits_per_second and hit_tokens_per_second, each a number
// or null; tenants also have puts.
Json consumers_json(const Consumers& consumers);

}  // namespace precis::cli
