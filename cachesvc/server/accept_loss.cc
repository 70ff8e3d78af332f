#include "cachesvc/server/accept_loss.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/version.h"
#include "cachesvc/store/extent_store.h"

namespace precis {
namespace {

std::string missing_text(std::uint64_t changes) {
  return counted(changes, "acknowledged change") + " missing";
}

// `before`: the number of missing changes, once it is known.
Result<std::string> give_up(const std::string& dir, std::uint64_t changes,
                            std::optional<std::uint64_t>& before) {
  // Opening would create a store.
  if (std::error_code error; !std::filesystem::exists(dir + "/CURRENT", error)) {
    return Status::not_found("there is no store in " + dir);
  }
  PRECIS_ASSIGN(const std::unique_ptr<Store> store, open_disk_store(dir));
  const std::optional<RecoveryDoubt> doubt = store->doubt();
  before = doubt ? doubt->lost_changes : 0;
  if (!doubt) {
    return Status::invalid("nothing is missing in " + dir + ": there is no loss to accept");
  }
  const std::string lost = counted(doubt->lost_changes, "acknowledged change");
  const std::string kept = std::to_string(store->stats().unclaimed_bytes) + " B of payload";
  if (doubt->lost_changes != changes) {
    return Status::invalid("--accept-loss " + std::to_string(changes) + ": " + lost + " of " + dir +
                           " are missing, and " + kept + " are kept for them" +
                           (doubt->logs.empty() ? "" : ", " + doubt->logs) +
                           "; to give them up say --accept-loss " +
                           std::to_string(doubt->lost_changes));
  }
  PRECIS_TRY(store->accept_loss());
  return "gave up " + lost + " of " + dir + "; up to " + kept +
         " that nothing names are freed from now on";
}

}  // namespace

Result<std::string> accept_loss(const Config& config, std::uint64_t changes) {
  PRECIS_ASSIGN(const Log::Level level, Log::parse_level(config.log_level));
  PRECIS_ASSIGN(Audit::Sink sink, Audit::Sink::open(config.audit_log));
  Log log(level);
  Metrics metrics;
  MachineRuntime runtime;
  Audit audit(log, metrics, runtime);  // its destructor waits until the line is written
  audit.use(std::move(sink));
  std::optional<std::uint64_t> before;
  auto given_up = give_up(config.data_dir, changes, before);
  AuditEvent event{.what = "AcceptLoss", .of = config.data_dir, .outcome = given_up.status()};
  if (before) event.old_value = missing_text(*before);
  if (given_up.ok()) event.new_value = missing_text(0);
  audit.write(
      {.client = server_name(), .from = "the command line, uid " + std::to_string(::getuid())},
      event);
  return given_up;
}

}  // namespace precis
