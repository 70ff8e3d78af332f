#include "cachesvc/shared/uploads.h"

#include <algorithm>
#include <chrono>

namespace precis {
namespace {

constexpr std::chrono::milliseconds kPause{200};
// The most that one write of rows has, or one change with more.
constexpr std::size_t kChangesAtOnce = 64, kRowBytesAtOnce = 8u << 20;

constexpr std::uint64_t kChangeBytes = 512;  // that a change takes besides

std::uint64_t bytes_of(const Upload& upload) {
  std::uint64_t bytes = kChangeBytes;
  for (const Upload::Object& object : upload.added) bytes += object.size_bytes;
  for (const auto& [key, value] : upload.rows.puts) bytes += key.size() + value.size();
  return bytes;
}

Status stopping() {
  return Status::unavailable(
      "the service is stopping, and the shared storage may lack this change");
}

}  // namespace

Uploads::Uploads(SharedTier& tier, const Clock& clock, std::unique_ptr<Executor> threads,
                 std::uint64_t bytes_max)
    : tier_(tier), clock_(clock), bytes_max_(bytes_max), threads_(std::move(threads)) {}

Uploads::~Uploads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.reset();
  for (auto& [number, shard] : shards_) {
    give_up(shard, stopping());
  }
}

void Uploads::begin(std::uint32_t shard, ShardMark mark, std::string node) {
  const std::lock_guard lock(mutex_);
  Shard& held = shards_[shard];
  held = {};
  held.mark = std::move(mark);
  held.node = std::move(node);
  held.hold = ++holds_;
  held.copier = std::make_shared<ShardCopier>(tier_, shard);
}

Uploads::Held Uploads::held(std::uint32_t shard) const {
  const std::lock_guard lock(mutex_);
  const auto at = shards_.find(shard);
  return at == shards_.end() ? Held() : Held{at->second.hold, at->second.changes};
}

std::optional<ShardMark> Uploads::end(std::uint32_t number, Clock::Time until) {
  std::unique_lock lock(mutex_);
  const auto at = shards_.find(number);
  if (at == shards_.end()) return std::nullopt;
  Shard& shard = at->second;
  shard.is_ending = true;
  const auto is_over = [&] { return stopping_ || (shard.waiting.empty() && !shard.is_running); };
  const bool in_time = clock_.wait(changed_, lock, until, is_over);
  std::optional<ShardMark> mark;
  if (in_time && shard.waiting.empty() && !shard.is_lost) mark = shard.mark;
  give_up(shard, Status::moved("another node owns the shard " + std::to_string(number)));
  shard.copier->abandon();
  clock_.wait(changed_, lock, Clock::Time::max(), [&] { return !shard.is_running; });
  shards_.erase(at);
  failing_.erase(number);
  std::erase(lost_, number);
  return mark;
}

void Uploads::add(std::uint32_t number, Upload upload) {
  const std::lock_guard lock(mutex_);
  const auto at = shards_.find(number);
  if (at == shards_.end() || at->second.is_lost || at->second.is_ending) return;
  push(number, at->second, {std::move(upload)});
}

void Uploads::push(std::uint32_t number, Shard& shard, Waiting change) {
  bytes_ += bytes_of(change.upload);
  ++changes_;
  ++shard.changes;
  shard.waiting.push_back(std::move(change));
  start(number, shard);
}

void Uploads::start(std::uint32_t number, Shard& shard) {
  const bool is_on = shard.is_queued || shard.is_running;
  if (is_on || shard.waiting.empty() || stopping_) return;
  shard.is_queued = true;
  threads_->post([this, number] { work(number); });
}

void Uploads::when_copied(std::uint32_t number, const Held& since,
                          std::function<void(Status)> done) {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    const auto at = shards_.find(number);
    if (at == shards_.end() || at->second.is_lost || at->second.hold != since.hold) {
      status = Status::moved("another node owns the shard " + std::to_string(number));
    } else if (nobody_waits_) {
      status = stopping();
    } else if (!at->second.waiting.empty()) {
      at->second.waiting.back().waiters.push_back({since.changes, std::move(done)});
      return;
    } else {
      status = at->second.copied(since.changes);
    }
  }
  done(status);
}

// The caller holds mutex_.
const ShardMark* Uploads::settled_mark(std::uint32_t number, std::uint64_t hold) const {
  const auto at = shards_.find(number);
  if (at == shards_.end()) return nullptr;
  const Shard& shard = at->second;
  const bool is_settled = shard.hold == hold && shard.waiting.empty() && !shard.is_lost &&
                          !shard.is_ending && shard.mark.node == shard.node;
  return is_settled ? &shard.mark : nullptr;
}

std::optional<ShardMark> Uploads::settled(std::uint32_t number, std::uint64_t hold) const {
  const std::lock_guard lock(mutex_);
  const ShardMark* const mark = settled_mark(number, hold);
  return mark == nullptr ? std::nullopt : std::optional(*mark);
}

void Uploads::remove(std::uint32_t number, std::uint64_t hold, const ShardMark& from,
                     std::vector<Upload::Object> objects, std::function<void(Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    const ShardMark* const mark = settled_mark(number, hold);
    if (mark != nullptr && *mark == from && !nobody_waits_) {
      Waiting change;
      change.upload.removed = std::move(objects);
      change.removed = std::move(done);
      return push(number, shards_.at(number), std::move(change));
    }
  }
  done(Status::conflict("shard " + std::to_string(number) + " is being changed"));
}

void Uploads::stop_waiting() {
  const std::lock_guard lock(mutex_);
  nobody_waits_ = true;
  for (auto& [number, shard] : shards_) tell_waiting(shard, stopping());
}

// The caller holds mutex_. Callbacks only post, so they may be called here.
void Uploads::tell_waiting(Shard& shard, const Status& status) {
  for (Waiting& each : shard.waiting) {
    for (const Waiter& waiter : std::exchange(each.waiters, {})) waiter.done(status);
    if (const Done removed = std::exchange(each.removed, {})) removed(status);
  }
}

bool Uploads::is_full() const {
  const std::lock_guard lock(mutex_);
  return bytes_ > bytes_max_;
}

std::vector<std::uint32_t> Uploads::take_lost() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lost_, {});
}

Uploads::Lag Uploads::lag() const {
  const std::lock_guard lock(mutex_);
  return {bytes_, changes_, failing_.empty() ? Status() : failing_.begin()->second};
}

// Waits a while before a failed call is made again. False if the uploads are given up.
bool Uploads::pause() {
  std::unique_lock lock(mutex_);
  clock_.wait(changed_, lock, clock_.now() + kPause, [this] { return stopping_; });
  return !stopping_;
}

void Uploads::give_up(Shard& shard, const Status& why) {
  tell_waiting(shard, why);
  if (!shard.waiting.empty()) {  // for those who ask later
    shard.failed_change = shard.changes;
    shard.failed = why;
  }
  for (Waiting& each : shard.waiting) {
    bytes_ -= bytes_of(each.upload);
    --changes_;
  }
  shard.waiting.clear();
}

// The first of the waiting changes, which stay in the queue until they are copied.
std::vector<Upload> Uploads::first_of(const Shard& shard) {
  std::vector<Upload> some;
  std::size_t bytes = 0;
  for (const Waiting& each : shard.waiting) {
    for (const auto& [key, value] : each.upload.rows.puts) bytes += key.size() + value.size();
    if (!some.empty() && (bytes > kRowBytesAtOnce || some.size() == kChangesAtOnce)) break;
    some.push_back(each.upload);
  }
  return some;
}

void Uploads::note_copied(Shard& shard, const ShardCopier::Copied& copied) {
  ++shard.mark.sequence;
  for (const Status& status : copied.each) {
    if (shard.waiting.empty()) return;  // given up meanwhile
    const Waiting& first = shard.waiting.front();
    bytes_ -= bytes_of(first.upload);
    --changes_;
    if (!status.ok()) {
      shard.failed_change = shard.changes - shard.waiting.size() + 1;
      shard.failed = status;
    }
    for (const Waiter& waiter : first.waiters) waiter.done(shard.copied(waiter.since));
    if (first.removed) first.removed(copied.removed);
    shard.waiting.pop_front();
  }
}

// Copies some changes once. Returns whether there may be more to copy at once. The caller holds the
// lock, which is released meanwhile.
bool Uploads::attempt(std::unique_lock<std::mutex>& lock, std::uint32_t number, Shard& shard) {
  const bool is_named = shard.mark.node == shard.node;
  const std::shared_ptr<ShardCopier> copier = shard.copier;
  if (!copier->is_begun()) copier->begin(first_of(shard));
  const ShardMark mark = shard.mark;
  lock.unlock();
  const ShardCopier::Copied copied =
      is_named ? copier->copy(mark) : ShardCopier::Copied{copier->name(mark, shard.node), {}, {}};
  lock.lock();
  failing_.erase(number);
  if (copied.status.ok() && !is_named) {
    shard.mark.node = shard.node;
  } else if (copied.status.ok()) {
    note_copied(shard, copied);
  } else if (copied.status.code() == StatusCode::kMoved) {
    shard.is_lost = true;
    lost_.push_back(number);
    give_up(shard, copied.status);
  } else {
    failing_[number] = copied.status;
    // The changes wait, but their callers need not, if it may stay so.
    if (copied.status.code() != StatusCode::kUnavailable) tell_waiting(shard, copied.status);
    return false;
  }
  return true;
}

// After a failure, other shards have their turn first. The shard may have ended meanwhile.
void Uploads::work(std::uint32_t number) {
  std::unique_lock lock(mutex_);
  const auto at = shards_.find(number);
  if (at == shards_.end() || at->second.is_running) return;
  Shard& shard = at->second;
  shard.is_queued = false;
  shard.is_running = true;
  bool goes_on = true;
  while (goes_on && !shard.waiting.empty() && !stopping_) goes_on = attempt(lock, number, shard);
  shard.is_running = false;
  changed_.notify_all();
  if (goes_on) return;
  lock.unlock();
  if (!pause()) return;
  lock.lock();
  if (const auto again = shards_.find(number); again != shards_.end()) {
    start(number, again->second);
  }
}

}  // namespace precis
