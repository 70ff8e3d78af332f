// The service's activity between two readings of its counters, as `precisctl top` shows it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/disk_use.h"
#include "client/cli/json.h"
#include "client/cli/top_rows.h"
#include "precis/client.h"

namespace precis::cli {

// The state of the service at one moment.
struct Reading {
  double at_seconds = 0;  // on this machine's steady clock
  std::map<std::string, double> metrics;
  DiskUse disk;
  msg::ServerStatus status;
  std::vector<msg::SegmentInfo> newest;  // of this tenant, a few
  std::vector<msg::ModelRow> models;
  Consumers consumers;  // without rates: all tenants if the caller may list them, else its models
};
// `ask_for_tenants`: false if the caller is known to be no admin. The service notes every refusal
// in its logs, and counts it as a failed request.
Result<Reading> take_reading(Client& client, bool ask_for_tenants = true);

struct Activity {
  double seconds = 0;  // between the readings
  struct Rate {
    std::string name;  // "put_bytes"; also the key in JSON
    std::string label;
    bool bytes = false;
    double per_second = 0;
    double total = 0;  // since the service started
  };
  std::vector<Rate> rates;
  // Shares in [0, 1]; none if there was nothing to share.
  std::optional<double> hit_share;        // of the lookups, those that matched
  std::optional<double> hit_token_share;  // of the tokens looked up, those that matched
  std::optional<double> memory_share;     // of the layers served, those from memory
  Consumers consumers;                    // of the later reading, the largest first
};
// If the service was restarted in between, the rates count from its start.
Activity activity_between(const Reading& before, const Reading& after);

// Keys: seconds; rates {name: per second}; totals {name: since the start}; hit_share,
// hit_token_share and memory_share, each a number or null; metrics of the present: clients,
// open_puts, open_gets, waiting_requests; status, as `precisctl status` has it; newest, segments as
// `precisctl prefix ls` has them; tenants or models, all consumers in their order
// (consumers_json()).
Json to_json(const Activity& activity, const Reading& now);
// `columns` as in render.h. `lines`: as many as fit; the largest consumers come before the newest
// segments, which get the lines that are left. 0: any number of lines, and a few consumers.
std::string activity_text(const Activity& activity, const Reading& now, std::size_t columns,
                          std::size_t lines = 0);

}  // namespace precis::cli
