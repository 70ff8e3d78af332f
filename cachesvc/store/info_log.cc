#include "cachesvc/store/info_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cachesvc/base/utc_time.h"

namespace precis {
namespace {

std::string now() {
  using namespace std::chrono;
  const auto us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  std::array<char, 12> fraction;
  std::snprintf(fraction.data(), fraction.size(), ".%06dZ ", static_cast<int>(us % 1'000'000));
  return utc_text(static_cast<std::uint64_t>(us) / 1000, "%Y-%m-%dT%H:%M:%S") + fraction.data();
}

}  // namespace

InfoLog::InfoLog(const std::string& dir, std::uint64_t bytes_max)
    : path_(dir + "/LOG"), bytes_max_(bytes_max) {
  // Earlier releases left several old logs, named by their time.
  std::vector<std::filesystem::path> old;
  std::error_code error;
  for (std::filesystem::directory_iterator file(dir, error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().filename().string().starts_with("LOG.old")) old.push_back(file->path());
  }
  for (const auto& file : old) std::filesystem::remove(file, error);
  const std::lock_guard lock(mutex_);
  begin();
}

void InfoLog::begin() {
  (void)std::rename(path_.c_str(), (path_ + ".old").c_str());
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  bytes_ = 0;
}

void InfoLog::write(std::string_view line) {
  std::string text = now();
  text += line;
  if (text.back() != '\n') text += '\n';
  const std::lock_guard lock(mutex_);
  if (bytes_ + text.size() > bytes_max_) begin();
  if (file_ && ::write(file_.get(), text.data(), text.size()) > 0) bytes_ += text.size();
}

}  // namespace precis
