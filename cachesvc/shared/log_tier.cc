#include "cachesvc/shared/log_tier.h"

#include <array>
#include <atomic>
#include <deque>
#include <utility>

#include "cachesvc/shared/log_memory.h"
#include "cachesvc/shared/shard_log.h"
#include "cachesvc/shared/shard_marks.h"

namespace precis {
namespace {

using Fit = LogState::Fit;

std::uint32_t one_group(std::span<const std::uint32_t> shards) {
  for (const std::uint32_t shard : shards) {
    PRECIS_CHECK(shard < kShards && group_of(shard) == group_of(shards.front()));
  }
  return group_of(shards.front());
}

std::string two_digits(std::uint32_t number) {
  return {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10)};
}

class LogTier final : public SharedTier {
 public:
  LogTier(std::unique_ptr<ObjectStore> store, LogTierSettings settings)
      : store_(std::move(store)),
        prefix_(std::move(settings.prefix)),
        memory_(settings.rows_bytes_max),
        tidied_(std::move(settings.tidied)),
        tidier_(std::move(settings.tidier)) {
    const std::string logs = prefix_ + "/log/";
    for (std::uint32_t group = 0; group < kShardGroups; ++group) {
      logs_.emplace_back(*store_, ShardLog::Settings{.name = logs + two_digits(group),
                                                     .snapshot_after = settings.snapshot_after,
                                                     .kept_bytes_max = settings.records_bytes_max,
                                                     .memory = &memory_});
    }
    // A person may remove the common log (claim_pool.cc), so nothing of it is kept.
    logs_.emplace_back(*store_, ShardLog::Settings{.name = logs + "common",
                                                   .snapshot_after = settings.snapshot_after,
                                                   .kept_bytes_max = 0,
                                                   .may_be_removed = true});
  }

  ~LogTier() override { is_closing_ = true; }
  LogTier(const LogTier&) = delete;
  LogTier& operator=(const LogTier&) = delete;

  Result<std::vector<std::optional<ShardMark>>> marks(
      std::span<const std::uint32_t> shards) override;
  Status change_marks(std::span<const Change> changes) override;
  Status scan(std::span<const std::uint32_t> shards, const Visit& row) override;
  Result<std::vector<std::optional<std::vector<std::byte>>>> rows(
      std::uint32_t shard, std::span<const std::string> keys) override;
  Status write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) override;
  Status write_object(const std::string& name, Bytes value) override {
    return store_->put(object_name(name), value);
  }
  Status read_object(const std::string& name, MutableBytes into) override {
    return store_->get_into(object_name(name), into);
  }
  Status remove_object(const std::string& name, std::uint64_t) override {
    return store_->remove(object_name(name));
  }
  Status list_objects(const VisitObject& object) override;
  Status write_common(const SharedBatch& batch) override;
  Status scan_common(const std::function<Status(std::string_view, Bytes)>& row) override;

 private:
  struct Log {
    Log(ObjectStore& store, ShardLog::Settings settings) : log(store, std::move(settings)) {}
    ShardLog log;
    std::atomic<bool> is_being_tidied = false;
  };

  // A name alone may be "..", which is no name in a URL.
  std::string object_name(const std::string& name) const { return prefix_ + "/objects/o-" + name; }
  Log& common() { return logs_[kShardGroups]; }
  // The outcome, and in `now` the marks if it is kDiffers.
  Result<Fit> append(Log& to, const LogRecord& record, LogState* now);
  void tidy(Log& log);

  const std::unique_ptr<ObjectStore> store_;
  const std::string prefix_;
  LogMemory memory_;
  const std::function<void(const std::string&, const Status&)> tidied_;
  std::deque<Log> logs_;  // of each group, then the common one
  std::atomic<bool> is_closing_ = false;
  const std::unique_ptr<Executor> tidier_;  // the last: it ends first
};

void LogTier::tidy(Log& log) {
  if (log.is_being_tidied.exchange(true)) return;
  const auto work = [this, &log] {
    if (!is_closing_) {
      const Status status = log.log.tidy(is_closing_);
      if (tidied_) tidied_(log.log.name(), status);
    }
    log.is_being_tidied = false;
  };
  tidier_ == nullptr ? work() : tidier_->post(work);
}

Result<Fit> LogTier::append(Log& to, const LogRecord& record, LogState* now) {
  PRECIS_ASSIGN(ShardLog::Appended appended, to.log.append(record));
  if (appended.is_long) tidy(to);
  if (now != nullptr) *now = std::move(appended.now);
  return appended.fit;
}

Result<std::vector<std::optional<ShardMark>>> LogTier::marks(
    std::span<const std::uint32_t> shards) {
  std::vector<std::optional<ShardMark>> found;
  if (shards.empty()) return found;
  PRECIS_ASSIGN(const LogState state, logs_[one_group(shards)].log.marks());
  for (const std::uint32_t shard : shards) found.push_back(state.mark_of(shard));
  return found;
}

Status LogTier::change_marks(std::span<const Change> changes) {
  if (changes.empty()) return {};
  std::vector<std::uint32_t> shards;
  for (const Change& change : changes) shards.push_back(change.shard);
  LogRecord record;
  record.changes.assign(changes.begin(), changes.end());
  LogState now;
  PRECIS_ASSIGN(const Fit fit, append(logs_[one_group(shards)], record, &now));
  if (fit != Fit::kDiffers) return {};
  for (const Change& change : changes) {
    const auto mark = now.mark_of(change.shard);
    if (mark != change.from && mark != change.to) return other_mark(change.shard, mark);
  }
  return other_mark(shards.front(), now.mark_of(shards.front()));
}

Status LogTier::write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) {
  ShardMark to = from;
  ++to.sequence;
  LogRecord record{{{shard, from, to}}, shard, batch};
  LogState now;
  PRECIS_ASSIGN(const Fit fit, append(logs_[one_group({&shard, 1})], record, &now));
  return fit == Fit::kDiffers ? other_holder(shard, now.mark_of(shard)) : Status();
}

Status LogTier::scan(std::span<const std::uint32_t> shards, const Visit& row) {
  if (shards.empty()) return {};
  return logs_[one_group(shards)].log.read([&](const LogState& state) -> Status {
    for (const std::uint32_t shard : shards) {
      for (auto at = state.rows.lower_bound({shard, ""});
           at != state.rows.end() && at->first.first == shard; ++at) {
        PRECIS_TRY(row(shard, at->first.second, at->second));
      }
    }
    return {};
  });
}

Result<std::vector<std::optional<std::vector<std::byte>>>> LogTier::rows(
    std::uint32_t shard, std::span<const std::string> keys) {
  std::vector<std::optional<std::vector<std::byte>>> values(keys.size());
  if (keys.empty()) return values;
  PRECIS_TRY(logs_[one_group({&shard, 1})].log.read([&](const LogState& state) -> Status {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = state.rows.find({shard, keys[i]});
      if (found != state.rows.end()) values[i] = found->second;
    }
    return {};
  }));
  return values;
}

Status LogTier::list_objects(const VisitObject& object) {
  const std::string begin = object_name("");
  std::string after;
  for (;;) {
    PRECIS_ASSIGN(const ObjectStore::Page page, store_->list(begin, after));
    for (const std::string& name : page.names) {
      if (name <= after || !name.starts_with(begin)) {
        return Status::unavailable("a list of " + begin + " is not in order");
      }
      after = name;
      PRECIS_TRY(object(name.substr(begin.size()), 0));
    }
    if (!page.more) return {};
    if (page.names.empty()) {
      return Status::unavailable("a list of " + begin + " goes on after a page without names");
    }
  }
}

Status LogTier::write_common(const SharedBatch& batch) {
  return append(common(), LogRecord{{}, 0, batch}, nullptr).status();
}

Status LogTier::scan_common(const std::function<Status(std::string_view, Bytes)>& row) {
  return common().log.read([&](const LogState& state) -> Status {
    for (const auto& [name, value] : state.rows) PRECIS_TRY(row(name.second, value));
    return {};
  });
}

}  // namespace

std::unique_ptr<SharedTier> make_log_tier(std::unique_ptr<ObjectStore> store,
                                          LogTierSettings settings) {
  return std::make_unique<LogTier>(std::move(store), std::move(settings));
}

}  // namespace precis
