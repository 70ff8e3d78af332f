// One measured figure beside its ceiling, in the form every benchmark of the project writes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

struct Row {
  std::string bench;
  std::string transport;
  std::size_t bytes = 0;
  Rate value;
  Rate ceiling;
  std::string ceiling_name;
  std::optional<double> mark;  // the share that docs promise

  double share() const { return ceiling.median > 0 ? value.median / ceiling.median : 0; }
};

// A table for people.
void print_table(const std::vector<Row>& rows);
// A JSON list, one object a row; unit is GB/s (1e9 bytes), value a median.
Status write_json(const std::vector<Row>& rows, const std::string& path);

}  // namespace precis::bench
