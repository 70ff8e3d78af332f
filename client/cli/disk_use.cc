#include "client/cli/disk_use.h"

#include <fmt/format.h>

#include "client/cli/table.h"

namespace precis::cli {

DiskUse disk_use(const msg::Stats& stats) {
  DiskUse all;
  for (const msg::Stat& row : stats.rows) {
    const auto value = static_cast<std::uint64_t>(row.value);
    if (row.name == "precis_all_stored_bytes") all.stored_bytes = value;
    if (row.name == "precis_max_disk_bytes") all.limit_bytes = value;
  }
  return all;
}

bool shares_limit(const msg::ServerStatus& status, const DiskUse& all) {
  return all.limit_bytes > 0 && all.limit_bytes == status.max_disk_bytes &&
         all.stored_bytes > status.stored_bytes;
}

std::string stored_text(const msg::ServerStatus& status, const DiskUse& all) {
  const std::string own = bytes_text(status.stored_bytes);
  if (status.max_disk_bytes == 0) return own;
  const std::string limit = bytes_text(status.max_disk_bytes);
  if (!shares_limit(status, all)) return fmt::format("{} of at most {}", own, limit);
  return fmt::format("{}; all tenants {} of at most {}", own, bytes_text(all.stored_bytes), limit);
}

}  // namespace precis::cli
