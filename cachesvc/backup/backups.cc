#include "cachesvc/backup/backups.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "cachesvc/base/utc_time.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Lowers the priority of the calling thread. The disk serves the thread only while it is idle, if
// the disk's scheduler knows priorities.
void lower_priority() {
  constexpr int kProcess = 1, kIdle = 3 << 13;  // as ioprio_set(2) has them
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19);
  (void)::syscall(SYS_ioprio_set, kProcess, 0, kIdle);
}

bool on_one_file_system(const std::string& a, const std::string& b) {
  struct stat of_a {
  }, of_b{};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev;
}

Status no_folder() {
  return Status::unsupported(
      "this service makes no backups: set backup_dir in its configuration and restart it");
}

}  // namespace

Result<msg::BackupState> Backups::start(std::string name, std::uint32_t keep) {
  if (parts_.dir.empty()) return no_folder();
  PRECIS_TRY(take_turn());
  const std::uint64_t now_ms = parts_.clock.unix_ms();
  auto named = name_of(std::move(name), now_ms);
  if (!named.ok()) {
    busy_ = false;
    return named.status();
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = {};
    state_.name = std::move(*named);
    state_.state = "running";
    state_.started_unix_ms = now_ms;
  }
  parts_.thread->post([this, keep] { run(keep); });
  return state();
}

Status Backups::take_turn() {
  const std::lock_guard lock(mutex_);
  if (stopped_) return Status::unavailable("the service is stopping");
  if (busy_) {
    return Status::conflict("the backup '" + state_.name +
                            "' is being made; wait for its end, or cancel it");
  }
  canceled_ = false;
  busy_ = true;
  return {};
}

Result<std::string> Backups::name_of(std::string asked, std::uint64_t now_ms) const {
  const BackupFolder folder(parts_.dir);
  std::string name = asked.empty() ? utc_text(now_ms, "%Y-%m-%dT%H%M%SZ") : asked;
  PRECIS_TRY(check_backup_name(name));
  const Status is_new = folder.check_new(name);
  if (is_new.ok()) return name;
  if (!asked.empty()) return is_new;
  for (int i = 2;; ++i) {  // several in a second
    if (std::string other = name + "-" + std::to_string(i); folder.check_new(other).ok()) {
      return other;
    }
  }
}

msg::BackupState Backups::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

msg::BackupState Backups::cancel() {
  const std::lock_guard lock(mutex_);
  if (busy_) canceled_ = true;
  return state_;
}

void Backups::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (busy_) canceled_ = true;
}

Result<msg::Backups> Backups::list() const {
  if (parts_.dir.empty()) return no_folder();
  PRECIS_ASSIGN(std::vector<msg::BackupRow> rows, BackupFolder(parts_.dir).list());
  if (rows.size() > limits::kListPageRowsMax) rows.resize(limits::kListPageRowsMax);
  return msg::Backups{std::move(rows)};
}

void Backups::run(std::uint32_t keep) {
  lower_priority();
  end(make(keep));
  busy_ = false;
}

Status Backups::make(std::uint32_t keep) {
  BackupFolder folder(parts_.dir);
  const msg::BackupState started = state();
  parts_.log.info("backup begins", {{"name", started.name}, {"dir", parts_.dir}});
  const BackupPlan plan{started.name, started.started_unix_ms, room_for_puts()};
  PRECIS_TRY(make_backup(parts_.store, folder, plan, [this](const BackupProgress& done) -> Status {
    const std::lock_guard lock(mutex_);
    state_.values = done.values;
    state_.bytes = done.bytes;
    state_.done_values = done.done_values;
    state_.done_bytes = done.done_bytes;
    state_.copied_values = done.copied_values;
    state_.copied_bytes = done.copied_bytes;
    state_.damaged = done.damaged;
    if (state_.damage.size() != done.damage.size()) state_.damage = done.damage;
    return canceled();
  }));
  if (keep == 0) return {};
  constexpr const char* kKept = "it is complete, but older backups were not removed";
  const msg::BackupState made = state();
  if (made.damaged > 0) {  // an older backup may have what this one lacks
    return Status::corruption(std::string(kKept) + ", because damaged values are not in it:\n" +
                              made.damage);
  }
  return folder.keep(keep, [this] { return canceled(); }).with_context(kKept);
}

Status Backups::canceled() const {
  return canceled_ ? Status::canceled("it was canceled") : Status();
}

// Twice the mark below which puts are refused, as the store reclaims space at once below that.
std::uint64_t Backups::room_for_puts() const {
  std::filesystem::path dir = parts_.dir;
  std::error_code error;
  while (!std::filesystem::exists(dir, error) && dir.has_relative_path()) dir = dir.parent_path();
  if (!on_one_file_system(dir, parts_.data_dir)) return 0;
  return 2 * parts_.store.health().min_free_bytes;
}

void Backups::end(const Status& status) {
  const bool was_canceled = status.code() == StatusCode::kCanceled;
  msg::BackupState ended;
  {
    const std::lock_guard lock(mutex_);
    state_.state = status.ok() ? "done" : was_canceled ? "canceled" : "failed";
    state_.ended_unix_ms = parts_.clock.unix_ms();
    if (!status.ok()) {
      state_.error = status.message();
      state_.code = status_code_name(status.code());
    }
    state_.is_full = status.code() == StatusCode::kOutOfSpace;
    ended = state_;
  }
  const Log::Fields fields = {{"name", ended.name},
                              {"values", ended.done_values},
                              {"copied_bytes", ended.copied_bytes},
                              {"damaged", ended.damaged},
                              {"damage", ended.damage},
                              {"error", ended.error}};
  if (status.ok() && ended.damaged == 0) return parts_.log.info("backup is complete", fields);
  if (was_canceled) return parts_.log.info("backup canceled", fields);
  parts_.log.warn(status.ok() ? "backup is complete, without damaged values" : "backup failed",
                  fields);
}

}  // namespace precis
