#include "cachesvc/shared/log_memory.h"

#include <utility>
#include <vector>

namespace precis {

bool LogMemory::has(Log log) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(log);
}

std::unique_ptr<LogMemory::Kept> LogMemory::take(Log log) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(log);
  return found == entries_.end() ? nullptr : std::move(found->second.kept);
}

void LogMemory::give(Log log, std::unique_ptr<Kept> kept, bool was_read) {
  std::vector<std::unique_ptr<Kept>> gone;  // freed without the lock
  const std::size_t bytes = kept->state.memory_bytes();
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[log];
  if (was_read) entry.read = ++reads_;
  if (entry.kept && entry.kept->last > kept->last) {
    gone.push_back(std::move(kept));
  } else {
    gone.push_back(std::exchange(entry.kept, std::move(kept)));
    bytes_ += bytes - std::exchange(entry.bytes, bytes);
  }
  const auto forget = [&](std::map<Log, Entry>::iterator at) {
    bytes_ -= at->second.bytes;
    gone.push_back(std::move(at->second.kept));
    entries_.erase(at);
  };
  if (entry.bytes > kept_bytes_max_) forget(entries_.find(log));  // others need not make room
  while (bytes_ > kept_bytes_max_) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      const bool is_older = oldest == entries_.end() || at->second.read < oldest->second.read;
      if (at->second.kept && is_older) oldest = at;
    }
    if (oldest == entries_.end()) return;  // all others are taken
    forget(oldest);
  }
}

void LogMemory::drop(Log log) {
  Entry gone;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(log);
  if (found == entries_.end()) return;
  gone = std::move(found->second);
  bytes_ -= gone.bytes;
  entries_.erase(found);
}

std::size_t LogMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace precis
