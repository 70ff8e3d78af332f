#include "cachesvc/server/accept_loss.h"

#include <filesystem>

#include "cachesvc/base/counted.h"
#include "cachesvc/store/extent_store.h"

namespace precis {

Result<std::string> accept_loss(const std::string& data_dir, std::uint64_t changes) {
  // Opening would make one.
  if (std::error_code error; !std::filesystem::exists(data_dir + "/CURRENT", error)) {
    return Status::not_found("there is no store in " + data_dir);
  }
  PRECIS_ASSIGN(const std::unique_ptr<Store> store, open_disk_store(data_dir));
  const std::optional<RecoveryDoubt> doubt = store->doubt();
  if (!doubt) {
    return Status::invalid("nothing is missing in " + data_dir + ": there is no loss to accept");
  }
  const std::string lost = counted(doubt->lost_changes, "acknowledged change");
  const std::string kept = std::to_string(store->stats().unclaimed_bytes) + " B of payload";
  if (doubt->lost_changes != changes) {
    return Status::invalid("--accept-loss " + std::to_string(changes) + ": " + lost + " of " +
                           data_dir + " are missing, and " + kept + " are kept for them" +
                           (doubt->logs.empty() ? "" : ", " + doubt->logs) +
                           "; to give them up say --accept-loss " +
                           std::to_string(doubt->lost_changes));
  }
  PRECIS_TRY(store->accept_loss());
  return "gave up " + lost + " of " + data_dir + "; up to " + kept +
         " that nothing names are freed from now on";
}

}  // namespace precis
