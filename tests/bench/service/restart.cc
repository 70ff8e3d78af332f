#include <filesystem>

#include "tests/bench/row.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/records.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {
namespace {

// Seconds from the start of the process until the long path is found, or, for an empty store, until
// the service answers a status request. The process is ended by SIGKILL.
Result<double> serving_after(const StageOptions& options, bool empty) {
  const auto began = std::chrono::steady_clock::now();
  PRECIS_ASSIGN(const Ready ready, start_precisd(options));
  PRECIS_ASSIGN(const auto client, Client::connect(ready.address));
  if (empty) {
    PRECIS_TRY(client->status().status());
    return seconds_since(began);
  }
  PRECIS_ASSIGN(const std::vector<msg::ModelRow> models, client->models());
  const Model model{records_model(), models.at(0).fingerprint, ""};
  PRECIS_ASSIGN(const LookupMatch match, client->lookup(model, long_path()));
  const double seconds = seconds_since(began);
  if (match.matched_tokens == kLongPathTokens) return seconds;
  return Status::internal("after a restart the long path is not found whole");
}

Row row_of(const Plan& plan) {
  return {"restart",
          {{"head_records", plan.head_records}, {"segments", record_segments(plan)}},
          "s",
          "the same with an empty store",
          {}};
}

Status measure(const Plan& plan, const std::string& transport) {
  Row row = row_of(plan);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    const Folder folder(plan.dir + "/restart");
    PRECIS_TRY(copy_records(plan, transport, folder.path() + "/data"));
    plan.began("restart " + std::to_string(round));
    PRECIS_ASSIGN(const double bare,
                  serving_after({folder.path() + "/empty", transport}, /*empty=*/true));
    PRECIS_ASSIGN(const double ours,
                  serving_after({folder.path() + "/data", transport}, /*empty=*/false));
    if (round > 0) row.samples.add(ours, bare);
  }
  print(row);
  return {};
}

}  // namespace

Jobs restart(const Plan& plan, const std::string& transport) {
  return {{{row_of(plan)}, [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench
