#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "cachesvc/store/extent_header.h"
#include "cachesvc/store/extent_names.h"

namespace precis {
namespace {

// Changes of a folder within this time may share a stamp.
constexpr std::chrono::seconds kStampStep{1};

}  // namespace

// Listing many files takes a while, so it is skipped while the folder's stamp is the one at which
// all files were found. Such a listing counts only if the folder has had its stamp for kStampStep.
std::vector<std::uint32_t> ExtentNames::missing(Folder& folder,
                                                std::span<const std::uint32_t> numbers) {
  const Clock::Time now = SystemClock().now();
  const std::optional<std::uint64_t> stamp = folder.stamp();
  bool is_settled = false;
  {
    const std::lock_guard lock(mutex_);
    if (stamp_ != stamp) {
      stamp_ = stamp;
      since_ = now;
      is_whole_ = false;
    }
    if (is_whole_) return {};
    is_settled = stamp && now - since_ >= kStampStep;
  }
  const auto all = folder.names();
  if (!all.ok()) return {};
  const std::set<std::string> names(all->begin(), all->end());
  std::vector<std::uint32_t> missing;
  std::ranges::copy_if(numbers, std::back_inserter(missing), [&](std::uint32_t number) {
    return !names.contains(extent_file_name(number));
  });
  const std::lock_guard lock(mutex_);
  if (missing.empty() && is_settled && stamp_ == stamp) is_whole_ = true;
  return missing;
}

Status deleted_extent_file(std::uint32_t number) {
  return Status::unavailable("payload file " + extent_file_name(number) +
                             " was deleted while the service ran: restore it if there is a copy, "
                             "and restart the service, which serves the rest");
}

}  // namespace precis
