#include "cachesvc/base/labeled.h"

#include <catch2/catch.hpp>
#include <string>

namespace precis {
namespace {

using Counts = Labeled<int>;

RequestLabels model(const std::string& tenant, std::size_t number) {
  return {tenant, "model " + std::to_string(number), "disk", "tcp"};
}

TEST_CASE("a tenant with many models gets a bounded number of rows, and takes none of others",
          "[unit][base]") {
  Counts counts;
  for (std::size_t m = 0; m < Counts::kTenantRowsMax + 10; ++m) ++counts.at(model("greedy", m));
  ++counts.at(model("greedy", 3));
  ++counts.at(model("modest", 0));
  CHECK(counts.rows().size() == Counts::kTenantRowsMax + 2);
  CHECK(counts.rows().at(model("greedy", 3)) == 2);
  CHECK(counts.rows().at({"greedy", "other", "other", "other"}) == 10);
  CHECK(counts.rows().at(model("modest", 0)) == 1);
}

TEST_CASE("rows stay within their limit, whoever asks, and nothing goes uncounted",
          "[unit][base]") {
  Counts counts;
  std::size_t made = 0;
  for (std::size_t t = 0; t < Counts::kRowsMax + Counts::kTenantsMax + 50; ++t) {
    for (std::size_t m = 0; m < 3; ++m, ++made) {
      ++counts.at(model("tenant " + std::to_string(t), m));
    }
  }
  CHECK(counts.rows().size() == Counts::kRowsMax + Counts::kTenantsMax + 1);
  CHECK(counts.rows().contains({"other", "other", "other", "other"}));
  std::size_t counted = 0;
  for (const auto& [labels, count] : counts.rows()) counted += static_cast<std::size_t>(count);
  CHECK(counted == made);
}

}  // namespace
}  // namespace precis
