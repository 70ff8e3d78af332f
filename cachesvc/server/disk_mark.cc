#include "cachesvc/server/disk_mark.h"

#include <filesystem>
#include <system_error>

#include "cachesvc/store/disk_budget.h"

namespace precis {

std::optional<std::uint64_t> raised_min_free_bytes(const Config& config) {
  namespace fs = std::filesystem;
  if (config.min_free_bytes == 0) return {};
  std::error_code error;
  fs::path at = fs::absolute(config.data_dir, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info disk = fs::space(at, error);
  if (error) return {};
  const std::uint64_t kept = DiskBudget::of(disk.capacity, config.min_free_bytes).min_free_bytes;
  if (kept == config.min_free_bytes) return {};
  return kept;
}

void warn_of_raised_mark(Log& log, const Config& config) {
  const auto kept = raised_min_free_bytes(config);
  if (!kept) return;
  log.warn("min_free_bytes is less than rows need on this disk, so more is kept free",
           {{"min_free_bytes", config.min_free_bytes}, {"kept_free_bytes", *kept}});
}

}  // namespace precis
