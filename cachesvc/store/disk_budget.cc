#include "cachesvc/store/disk_budget.h"

#include <algorithm>

#include "cachesvc/store/files.h"
#include "precis/limits.h"

namespace precis {

DiskBudget DiskBudget::of(std::uint64_t total_bytes, std::uint64_t min_free_bytes) {
  DiskBudget budget;
  budget.reserve_bytes = std::clamp(total_bytes / limits::kReserveShare, limits::kReserveBytesMin,
                                    limits::kReserveBytesMax);
  budget.reserve_bytes -= budget.reserve_bytes % kFileBlockBytes;
  budget.file_bytes = std::clamp(total_bytes / limits::kPayloadFileShare,
                                 limits::kPayloadFileBytesMin, limits::kPayloadFileBytesMax);
  budget.min_free_bytes = std::max(min_free_bytes, budget.reserve_bytes + budget.file_bytes);
  // A compaction writes at most four memtables and one level, three eighths of the reserve. A flush
  // and the log beside it take two memtables each.
  budget.memtable_bytes = budget.reserve_bytes / 16;
  budget.level_bytes = budget.reserve_bytes / 8;
  return budget;
}

}  // namespace precis
