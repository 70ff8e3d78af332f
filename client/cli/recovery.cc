#include "client/cli/recovery.h"

#include <fmt/format.h>

#include "client/cli/table.h"

namespace precis::cli {

Recovery recovery_of(const msg::ServerStatus& status) {
  if (!status.doubtful_recovery) return {};
  return {status.doubtful_recovery, status.lost_changes, status.kept_bytes, status.kept_log_bytes};
}

std::string recovery_text(const Recovery& recovery) {
  const std::string lost =
      recovery.lost_changes > 0
          ? fmt::format("{} that the service had acknowledged {} missing",
                        counted(recovery.lost_changes, "change"),
                        recovery.lost_changes == 1 ? "is" : "are")
          : std::string("the record of acknowledged changes is lost, so changes may be missing");
  const std::string logs = recovery.kept_log_bytes == 0
                               ? std::string()
                               : fmt::format(", and {} of earlier logs in DIR/before_recovery",
                                             bytes_text(recovery.kept_log_bytes));
  return fmt::format(
      "{} since the store was recovered; {} of payload that no row names are kept{}. Restore a "
      "copy of the data directory, or stop the service and accept the loss for good with precisd "
      "--data DIR --accept-loss {}",
      lost, bytes_text(recovery.kept_bytes), logs, recovery.lost_changes);
}

Json to_json(const Recovery& recovery) {
  return {{"doubtful", recovery.doubtful},
          {"lost_changes", recovery.lost_changes},
          {"kept_bytes", recovery.kept_bytes},
          {"kept_log_bytes", recovery.kept_log_bytes}};
}

}  // namespace precis::cli
