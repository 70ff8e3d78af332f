#include "cachesvc/cluster/agreed_rows.h"

#include <algorithm>
#include <map>

namespace precis::cluster {
namespace {

// If several nodes make a change at the same time, one succeeds each time.
constexpr int kTries = 32;
constexpr std::chrono::milliseconds kWaitForOthers{1000};
constexpr std::uint32_t kRetryAfterMs = 500;
// After so long, another node goes on with what the first one has not completed. Each part of it is
// written in much less.
constexpr std::chrono::seconds kCompleteAfter{30};
constexpr std::size_t kBytesPerPart = 4 << 20;

Status not_now(const std::string& why) { return Status::rejected(why, kRetryAfterMs); }

}  // namespace

AgreedRows::AgreedRows(const Settings& settings, Runtime& runtime, Log& log, AgreedCopy& copy)
    : log_(log),
      clock_(runtime.clock()),
      copy_(copy),
      etcd_(settings.etcd, settings.tls, settings.time),
      store_(etcd_, settings.cluster, runtime),
      thread_(runtime.make_executor("agreed", 1)) {}

AgreedRows::~AgreedRows() {
  stop();
  thread_.reset();
}

void AgreedRows::stop() {
  is_stopping_ = true;
  etcd_.hurry();
}

// ---- following ----------------------------------------------------------------------------------

Status AgreedRows::join() {
  const std::lock_guard lock(mutex_);
  compares_all_ = true;
  const Status status = follow();
  const std::lock_guard noted(noted_mutex_);
  problem_ = status;
  return status;
}

void AgreedRows::note(std::uint64_t revision, const std::string& row) {
  const std::lock_guard lock(noted_mutex_);
  noted_revision_ = revision;
  noted_row_ = row;
  if (std::exchange(is_posted_, true)) return;
  thread_->post([this] { follow_noted(); });
}

void AgreedRows::follow_noted() {
  const std::lock_guard lock(mutex_);
  bool is_applied = false;
  {
    const std::lock_guard noted(noted_mutex_);
    is_posted_ = false;
    is_applied = noted_revision_ == applied_.changed && noted_row_ == applied_.row;
  }
  Status status;
  if (compares_all_ || !is_applied) status = follow();
  if (status.ok() && !copy_.own_changes().empty()) {
    status = change_rows([this]() -> Result<Rows> { return copy_.own_changes(); });
  }
  if (status.ok() && !left_out_.empty()) status = left_out_.begin()->second;
  const std::lock_guard noted(noted_mutex_);
  problem_ = status;
}

Status AgreedRows::problem() const {
  const std::lock_guard lock(noted_mutex_);
  return problem_;
}

Status AgreedRows::catch_up(std::uint64_t asked) {
  const std::unique_lock lock(mutex_, kWaitForOthers);
  if (!lock) return not_now("a change of the cluster's settings is slow");
  if (followed_ >= asked) return {};
  const std::uint64_t all = asked_;
  if (const Status status = follow(); !status.ok()) return not_now(status.message());
  followed_ = all;
  return {};
}

// Reads at one revision of etcd, so that changes made meanwhile do not matter.
Status AgreedRows::follow(Rows* taken) {
  if (is_stopping_) return Status::unavailable("the service is stopping");
  PRECIS_ASSIGN(const Version now, store_.version());
  compares_all_ |= !now.complete;
  const bool is_applied = now.changed == applied_.changed && now.row == applied_.row;
  if (!compares_all_ && is_applied) return {};
  if (!now.complete) PRECIS_TRY(may_complete(now));
  PRECIS_ASSIGN(auto index, store_.list(now, index_));
  compares_all_ |= was_restored(now, index);
  Rows changed, missing;
  if (compares_all_) {
    PRECIS_TRY(compare_all(now, index, changed, missing));
  } else {
    PRECIS_ASSIGN(changed, store_.changed(now, applied_.changed, index, left_out_));
    for (const auto& [key, row] : index_) {
      if (!index.contains(key)) changed.push_back({key, std::nullopt});
    }
  }
  if (taken) *taken = changed;
  PRECIS_TRY(take(std::move(changed)));
  index_ = std::move(index);
  applied_ = now;
  if (!now.complete) PRECIS_TRY(complete(std::move(missing)));
  compares_all_ = false;
  is_known_ = true;
  return {};
}

// After a restore from a backup, etcd has older rows under revisions that this node has read.
bool AgreedRows::was_restored(const Version& now, const AgreedStore::Index& index) const {
  if (now.changed <= applied_.changed) return true;
  return std::ranges::any_of(index, [&](const auto& row) {
    const auto known = index_.find(row.first);
    return row.second.revision <= applied_.changed &&
           (known == index_.end() || known->second.revision != row.second.revision);
  });
}

Status AgreedRows::compare_all(const Version& now, AgreedStore::Index& index, Rows& changed,
                               Rows& missing) {
  left_out_.clear();
  PRECIS_ASSIGN(changed, store_.changed(now, 0, index, left_out_));
  PRECIS_ASSIGN(Rows rows, copy_.rows());
  std::map<std::string, std::optional<std::string>> own;
  for (AgreedRow& row : rows) own[row.key] = std::move(row.value);
  std::erase_if(changed, [&](const AgreedRow& row) {
    const auto same = own.find(row.key);
    return same != own.end() && same->second == row.value;
  });
  const std::string identity = copy_.identity();
  const bool has_other = std::ranges::find(changed, identity, &AgreedRow::key) != changed.end() ||
                         (now.complete && !index.contains(identity));
  const bool is_other = own.contains(identity) && has_other;
  if (is_other) {
    return Status::version(
        "etcd has the settings of another cluster of this name than the one that this node was in, "
        "so it keeps its own and does not join: use another cluster_name, or give this node an "
        "empty data_dir. If etcd has lost its data and a new node has begun the cluster again, "
        "stop "
        "that node and remove the rows below precis-agreed/ and precis/ in etcd");
  }
  for (auto& [key, value] : own) {
    if (index.contains(key)) continue;
    if (now.complete) {
      changed.push_back({key, std::nullopt});
    } else {
      missing.push_back({key, std::move(value)});
    }
  }
  const auto replaced =
      std::ranges::count_if(changed, [&](const AgreedRow& row) { return own.contains(row.key); });
  if (replaced > 0) {
    log_.warn("settings of this node are replaced by the cluster's", {{"rows", replaced}});
  }
  return {};
}

Status AgreedRows::take(Rows rows) {
  if (rows.empty()) return {};
  std::vector<std::string> keys;
  for (const AgreedRow& row : rows) keys.push_back(row.key);
  LeftOut left_out;
  PRECIS_TRY(copy_.take(std::move(rows), left_out));
  for (const std::string& key : keys) left_out_.erase(key);
  left_out_.merge(left_out);
  return {};
}

// The first node of a cluster brings its own rows. If it ends meanwhile, the next one adds its own
// to those that are there.
Status AgreedRows::may_complete(const Version& now) {
  if (now.changed == 0 || now.by == store_.writer()) return {};
  const Clock::Time time = clock_.now();
  if (!incomplete_ || incomplete_->first != now.row) incomplete_ = {now.row, time};
  if (time - incomplete_->second > kCompleteAfter) return {};
  return Status::unavailable("another node is writing the cluster's first settings");
}

// Before it writes rows, it claims the cluster, so that no other node takes it for an empty one.
Status AgreedRows::complete(Rows missing) {
  const auto write = [&](const Rows& some, bool is_last) -> Status {
    if (is_stopping_) return Status::unavailable("the service is stopping");
    const auto made = store_.write(applied_.changed, some, is_last, index_);
    if (made.status().code() == StatusCode::kConflict) {
      return Status::unavailable("another node has begun to write the cluster's first settings");
    }
    PRECIS_ASSIGN(applied_, made);
    return {};
  };
  PRECIS_TRY(write({}, /*is_last=*/missing.empty()));
  while (!missing.empty()) {
    Rows some;
    std::size_t bytes = 0;
    while (!missing.empty() && some.size() < AgreedStore::kRowsPerChange && bytes < kBytesPerPart) {
      bytes += missing.back().value->size();
      some.push_back(std::move(missing.back()));
      missing.pop_back();
    }
    PRECIS_TRY(write(some, /*is_last=*/missing.empty()));
  }
  log_.info("the cluster has the settings of this node", {{"rows", index_.size()}});
  return {};
}

// ---- changing -----------------------------------------------------------------------------------

Status AgreedRows::change(const Plan& plan) {
  const std::unique_lock lock(mutex_, kWaitForOthers);
  if (!lock) return not_now("another change of the settings is slow");
  return change_rows(plan);
}

Status AgreedRows::change_rows(const Plan& plan) {
  Rows unsure;  // etcd did not say whether it has made this change
  for (int tries = 0; tries < kTries; ++tries) {
    Rows taken;
    if (const Status status = follow(&taken); !status.ok()) {
      if (unsure.empty()) {
        return not_now("nothing is changed, because etcd did not answer: " + status.message());
      }
      return Status::unavailable("etcd did not say whether it has made this change: " +
                                 status.message());
    }
    if (!unsure.empty() && has_made(unsure, taken)) return {};
    PRECIS_ASSIGN(Rows rows, plan());
    if (rows.empty()) return {};
    const auto made = store_.write(applied_.changed, rows, /*complete=*/true, index_);
    if (made.ok()) {
      applied_ = *made;
      const Status status = take(std::move(rows));
      compares_all_ |= !status.ok();  // the next time it gets them from etcd
      return status.with_context("the change is made, and this node does not have it yet");
    }
    if (made.status().code() == StatusCode::kOutOfSpace) return made.status();
    if (made.status().code() != StatusCode::kConflict) unsure = std::move(rows);
  }
  return not_now("other nodes change the settings all the time");
}

bool AgreedRows::has_made(const Rows& rows, const Rows& taken) const {
  return std::ranges::all_of(rows, [&](const AgreedRow& row) {
    if (!row.value) return !index_.contains(row.key);
    return std::ranges::any_of(taken, [&](const AgreedRow& each) {
      return each.key == row.key && each.value == row.value;
    });
  });
}

}  // namespace precis::cluster
