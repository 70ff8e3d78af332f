#include "cachesvc/shared/uploads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

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

// Later rows replace earlier ones.
void append(const SharedBatch& later, SharedBatch& to) {
  std::set<std::string_view> changed(later.deletes.begin(), later.deletes.end());
  for (const auto& [key, value] : later.puts) changed.insert(key);
  std::erase_if(to.puts, [&](const auto& put) { return changed.contains(put.first); });
  std::erase_if(to.deletes, [&](const std::string& key) { return changed.contains(key); });
  to.puts.insert(to.puts.end(), later.puts.begin(), later.puts.end());
  to.deletes.insert(to.deletes.end(), later.deletes.begin(), later.deletes.end());
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
  held.is_abandoned = std::make_shared<std::atomic<bool>>(false);
}

std::uint64_t Uploads::hold(std::uint32_t shard) const {
  const std::lock_guard lock(mutex_);
  const auto at = shards_.find(shard);
  return at == shards_.end() ? 0 : at->second.hold;
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
  *shard.is_abandoned = true;
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
  push(number, at->second, {std::move(upload), {}});
}

void Uploads::push(std::uint32_t number, Shard& shard, Waiting change) {
  bytes_ += bytes_of(change.upload);
  ++changes_;
  shard.waiting.push_back(std::move(change));
  start(number, shard);
}

void Uploads::start(std::uint32_t number, Shard& shard) {
  const bool is_on = shard.is_queued || shard.is_running;
  if (is_on || shard.waiting.empty() || stopping_) return;
  shard.is_queued = true;
  threads_->post([this, number] { work(number); });
}

void Uploads::when_copied(std::uint32_t number, std::uint64_t hold,
                          std::function<void(Status)> done) {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    const auto at = shards_.find(number);
    if (at == shards_.end() || at->second.is_lost || at->second.hold != hold) {
      status = Status::moved("another node owns the shard " + std::to_string(number));
    } else if (nobody_waits_) {
      status = stopping();
    } else if (!at->second.waiting.empty()) {
      at->second.waiting.back().done.push_back(std::move(done));
      return;
    } else {
      status = at->second.last;
    }
  }
  done(status);
}

void Uploads::stop_waiting() {
  const std::lock_guard lock(mutex_);
  nobody_waits_ = true;
  for (auto& [number, shard] : shards_) tell_waiting(shard, stopping());
}

// The caller holds mutex_. Callbacks only post, so they may be called here.
void Uploads::tell_waiting(Shard& shard, const Status& status) {
  for (Waiting& each : shard.waiting) {
    for (const auto& done : std::exchange(each.done, {})) done(status);
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
  for (Waiting& each : shard.waiting) {
    bytes_ -= bytes_of(each.upload);
    --changes_;
  }
  shard.waiting.clear();
}

Status Uploads::copy_objects(const Upload& upload, std::size_t& written,
                             const std::atomic<bool>& is_abandoned) {
  for (; written < upload.added.size(); ++written) {
    if (is_abandoned) return Status::unavailable("given up");
    const Upload::Object& object = upload.added[written];
    if (!upload.values || written >= upload.values->size()) {
      return Status::corruption("the local copy of " + object.name + " is gone");
    }
    std::vector<std::byte> value(object.size_bytes);
    PRECIS_TRY((*upload.values)[written]->read_into(value));
    PRECIS_TRY(tier_.write_object(object.name, value));
  }
  return {};
}

// A segment whose local copy is damaged is not copied.
Uploads::Copied Uploads::copy(Attempt& attempt, std::uint32_t shard, const ShardMark& mark,
                              Unshared& unshared, const std::atomic<bool>& is_abandoned) {
  Copied copied;
  SharedBatch rows;
  std::map<std::string, std::uint64_t> removed;  // sizes by name
  for (std::size_t i = 0; i < attempt.some.size(); ++i) {
    const Upload& each = attempt.some[i];
    Status objects = copy_objects(each, attempt.written[i], is_abandoned);
    const bool is_gone =
        objects.code() == StatusCode::kCorruption || objects.code() == StatusCode::kNotFound;
    if (!objects.ok() && !is_gone) return {std::move(objects), {}, {}};
    for (const auto& [key, value] : each.rows.puts) {
      if (is_gone) unshared.insert(key);
      if (!is_gone && !each.added.empty()) unshared.erase(key);
    }
    for (const std::string& key : each.rows.deletes) unshared.erase(key);
    if (objects.ok()) {
      if (unshared.empty()) {
        append(each.rows, rows);
      } else {  // a later change of such a row must not share it: others would miss the bytes
        SharedBatch shared = each.rows;
        std::erase_if(shared.puts, [&](const auto& put) { return unshared.contains(put.first); });
        append(shared, rows);
      }
      // A segment that is put again within a millisecond has objects of the same names.
      for (const Upload::Object& object : each.added) removed.erase(object.name);
      for (const Upload::Object& object : each.removed) removed[object.name] = object.size_bytes;
    }
    copied.each.push_back(std::move(objects));
  }
  copied.status = tier_.write(shard, mark, rows);
  if (!copied.status.ok()) return copied;
  copied.removed = remove_objects(removed, is_abandoned);
  return copied;
}

// Ends at the first failure, so that a storage that does not answer stops nobody for long.
Status Uploads::remove_objects(const std::map<std::string, std::uint64_t>& sizes,
                               const std::atomic<bool>& is_abandoned) {
  for (const auto& [object, size_bytes] : sizes) {
    if (is_abandoned) return Status::moved("given up");
    PRECIS_TRY(tier_.remove_object(object, size_bytes));
  }
  return {};
}

// Says in the mark that this node changes the shard, before it does.
Status Uploads::name(std::uint32_t shard, const ShardMark& mark, const std::string& node) {
  ShardMark named = mark;
  named.node = node;
  const std::array change{SharedTier::Change{shard, mark, named}};
  const Status changed = tier_.change_marks(change);
  return changed.code() == StatusCode::kConflict ? Status::moved(changed.message()) : changed;
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

void Uploads::note_copied(Shard& shard, const Copied& copied) {
  ++shard.mark.sequence;
  for (const Status& status : copied.each) {
    if (shard.waiting.empty()) return;  // given up meanwhile
    const Waiting& first = shard.waiting.front();
    bytes_ -= bytes_of(first.upload);
    --changes_;
    for (const Done& done : first.done) done(status);
    if (first.removed) first.removed(copied.removed);
    shard.waiting.pop_front();
    shard.last = status;
  }
}

// Copies some changes once. Returns whether there may be more to copy at once. The caller holds the
// lock, which is released meanwhile.
bool Uploads::attempt(std::unique_lock<std::mutex>& lock, std::uint32_t number, Shard& shard) {
  const bool is_named = shard.mark.node == shard.node;
  if (!shard.attempt) {
    shard.attempt = std::make_shared<Attempt>(Attempt{first_of(shard), {}});
    shard.attempt->written.resize(shard.attempt->some.size());
  }
  const auto now = shard.attempt;
  const auto is_abandoned = shard.is_abandoned;
  const auto unshared = shard.unshared;
  const ShardMark mark = shard.mark;
  lock.unlock();
  const Copied copied = is_named ? copy(*now, number, mark, *unshared, *is_abandoned)
                                 : Copied{name(number, mark, shard.node), {}, {}};
  lock.lock();
  failing_.erase(number);
  if (copied.status.ok() && !is_named) {
    shard.mark.node = shard.node;
  } else if (copied.status.ok()) {
    note_copied(shard, copied);
    shard.attempt.reset();
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
