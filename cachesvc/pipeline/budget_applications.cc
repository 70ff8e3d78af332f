#include "cachesvc/pipeline/budget_applications.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cachesvc/base/counted.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr char kRunning[] = "running";
constexpr std::chrono::milliseconds kAgain{1000};
constexpr int kTriesMax = 60;               // of a segment, while the service is busy
constexpr std::size_t kTurnSegments = 256;  // in one turn of the loop, if they need no work

// One name a line; names that do not fit are only counted.
std::string lines_of(const std::vector<std::string>& names) {
  constexpr std::size_t kRoom = limits::kTextBytesMax - 64;
  std::string lines;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (lines.size() + names[i].size() > kRoom) {
      return lines + "and " + counted(names.size() - i, "other");
    }
    lines += names[i] + (i + 1 == names.size() ? "" : "\n");
  }
  return lines;
}

// Cuts a long text between two characters of UTF-8.
std::string text_of(const Status& status) {
  std::string text = status.message();
  if (text.size() <= limits::kTextBytesMax) return text;
  std::size_t size = limits::kTextBytesMax;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  text.resize(size);
  return text;
}

bool is_busy(const Status& status) {
  return status.code() == StatusCode::kRejected || status.code() == StatusCode::kOutOfSpace;
}

}  // namespace

Status BudgetApplications::check_free(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() || !runs(found->second.trims)) return {};
  return Status::conflict("application " + std::to_string(found->second.trims->which.number) +
                          " of an earlier change to what is stored still runs; wait for its end, "
                          "or cancel it (precisctl budget application --cancel)");
}

Result<std::uint64_t> BudgetApplications::start(const Owner& owner, BudgetsToApply budgets,
                                                std::uint64_t revision, bool dry_run) {
  if (stopped_) return Status::unavailable("the service is stopping");
  PRECIS_TRY(check_free(owner.tenant));
  begin(owner, std::move(budgets), {++started_, revision, dry_run, 0});
  return started_;
}

void BudgetApplications::follow(const Owner& owner, BudgetsToApply budgets, const Agreed& agreed) {
  if (stopped_) return;
  if (!has_begun(owner.tenant, agreed)) return begin(owner, std::move(budgets), agreed);
  const Shared trims = tenants_[owner.tenant].trims;
  if (agreed.dry_run || trims->canceled) return;
  trims->again = true;
  msg::BudgetApplication& state = trims->state;
  if (std::exchange(state.state, kRunning) == kRunning) return;
  state.ended_unix_ms = 0;
  state.error.clear();
  state.code.clear();
  ++running_;
  spawn(run(owner, std::move(budgets), trims));
}

bool BudgetApplications::has_begun(const std::string& tenant, const Agreed& agreed) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return false;
  const Shared& latest = agreed.dry_run ? found->second.count : found->second.trims;
  return latest && latest->which == agreed;
}

void BudgetApplications::begin(const Owner& owner, BudgetsToApply budgets, const Agreed& which) {
  const auto begun = std::make_shared<Application>();
  begun->which = which;
  msg::BudgetApplication& state = begun->state;
  state.number = which.number;
  state.state = kRunning;
  state.dry_run = which.dry_run;
  state.revision = which.revision;
  state.started_unix_ms = parts_.clock.unix_ms();
  OfTenant& of = tenants_[owner.tenant];
  if (of.count) end(*of.count);
  of.count.reset();
  begun->before = of.trims;
  if (which.dry_run) {
    of.count = begun;
  } else {
    const Shared earlier = std::exchange(of.trims, begun);
    if (earlier && !(earlier->runs() && earlier->which.revision == which.revision)) {
      end(*earlier);
      // Trims that are ended while they wait stop at once. The trims that they wait for may go on.
      if (earlier->before) begun->before = earlier->before;
    }
  }
  ++running_;
  spawn(run(owner, std::move(budgets), begun));
}

void BudgetApplications::end(Application& application) {
  application.canceled = true;
  wake(application);
}

void BudgetApplications::end(const std::string& tenant, bool dry_run) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  if (dry_run) {
    if (found->second.count) end(*found->second.count);
    return;
  }
  for (Shared trims = found->second.trims; trims; trims = trims->before) end(*trims);
}

msg::BudgetApplication BudgetApplications::state(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return {};
  const auto& [trims, count] = found->second;
  const Shared& told = !count || runs(trims) ? trims : count;
  return told ? described(*told) : msg::BudgetApplication();
}

Result<msg::BudgetApplication> BudgetApplications::cancel(const std::string& tenant,
                                                          std::uint64_t number) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return msg::BudgetApplication();
  bool is_one = number == 0;
  std::uint64_t other = 0;
  for (const Shared& each : {found->second.trims, found->second.count}) {
    if (!runs(each)) continue;
    const bool is_this = number == 0 || number == each->which.number;
    if (is_this) end(tenant, each->which.dry_run);
    is_one |= is_this;
    if (!is_this) other = each->which.number;
  }
  if (!is_one && other != 0) {
    return Status::conflict("application " + std::to_string(other) + " runs, not " +
                            std::to_string(number));
  }
  return state(tenant);
}

void BudgetApplications::forget(const std::string& tenant) {
  end(tenant, /*dry_run=*/false);
  end(tenant, /*dry_run=*/true);
  tenants_.erase(tenant);
}

msg::BudgetApplication BudgetApplications::described(const Application& application) {
  msg::BudgetApplication told = application.state;
  for (std::size_t l = 0; l < told.kept_mass.size(); ++l) {
    const auto count = std::max<std::uint64_t>(application.mass_counts[l], 1);
    told.kept_mass[l] /= static_cast<double>(count);
  }
  return told;
}

Task<void> BudgetApplications::run(Owner owner, BudgetsToApply budgets, Shared application) {
  if (application->before && application->before->state.state == kRunning) {
    application->before->next = application;
    co_await completion<bool>([&](auto done) { application->resume = std::move(done); });
  }
  // If it was canceled while it waited, a later application waits for the same trims.
  const bool waits = application->before && application->before->state.state == kRunning;
  if (!waits) application->before.reset();
  Status ended;
  do {
    application->again = false;
    ended = co_await apply(owner, budgets, *application);
  } while (application->again && !application->canceled && !stopped_);
  msg::BudgetApplication& state = application->state;
  const bool was_canceled = ended.code() == StatusCode::kCanceled || stopped_;
  state.state = ended.ok() ? "done" : was_canceled ? "canceled" : "failed";
  state.ended_unix_ms = parts_.clock.unix_ms();
  if (!ended.ok()) {
    state.error = text_of(ended);
    state.code = status_code_name(ended.code());
  }
  if (const Shared next = application->next.lock()) wake(*next);
  --running_;
  if (state.dry_run) co_return;
  parts_.log.info("budgets were applied to what is stored", {{"tenant", owner.tenant},
                                                             {"number", state.number},
                                                             {"revision", state.revision},
                                                             {"state", state.state},
                                                             {"segments", state.trimmed_segments},
                                                             {"freed_bytes", state.freed_bytes},
                                                             {"refused", state.refused_segments},
                                                             {"error", state.error}});
}

void BudgetApplications::wake(Application& application) {
  auto resume = std::exchange(application.resume, nullptr);
  if (resume) parts_.loop.post([resume = std::move(resume)] { resume(true); });
}

Task<Status> BudgetApplications::apply(const Owner& owner, const BudgetsToApply& budgets,
                                       Application& application) {
  PRECIS_CO_TRY(check_wanted(owner.tenant, application));
  std::optional<Result<ConcernedSegments>> result;
  co_await in_turns(parts_.lists, parts_.loop, owner,
                    concerned_by(parts_.catalog, owner.tenant, parts_.configured, budgets, result));
  if (!result->ok()) co_return result->status();
  const ConcernedSegments chosen = std::move(**result);
  msg::BudgetApplication& state = application.state;
  state.loss = lines_of(chosen.loss);
  state.apart = lines_of(chosen.apart);
  state.segments += chosen.segments.size();
  for (const auto& segment : chosen.segments) state.bytes += segment.stored_bytes;
  for (const auto& segment : chosen.segments) {
    PRECIS_CO_TRY(check_wanted(owner.tenant, application));
    msg::TrimPrefix request;
    request.segment = segment.id;
    request.budget = segment.keep;
    request.dry_run = state.dry_run;
    const auto trimmed = co_await trim(owner, request, application);
    PRECIS_CO_TRY(take(trimmed, application));
    ++state.done_segments;
    state.done_bytes += segment.stored_bytes;
    if (state.done_segments % kTurnSegments == 0) co_await pause({});
  }
  co_return Status();
}

Status BudgetApplications::check_wanted(const std::string& tenant,
                                        const Application& application) const {
  if (stopped_) return Status::canceled("the service is stopping");
  if (application.canceled) return Status::canceled("it was canceled by a request");
  const std::uint64_t newest = parts_.catalog.budget_revisions(tenant, {0, 0}).newest;
  if (newest == application.state.revision) return {};
  return Status::canceled("the budgets are at revision " + std::to_string(newest) + " now, not " +
                          std::to_string(application.state.revision));
}

Task<Result<msg::Trimmed>> BudgetApplications::trim(const Owner& owner,
                                                    const msg::TrimPrefix& request,
                                                    const Application& application) {
  for (int tries = 1;; ++tries) {
    auto trimmed = co_await parts_.trim.run(owner, request);
    if (!is_busy(trimmed.status()) || tries == kTriesMax) co_return trimmed;
    co_await pause(kAgain);
    PRECIS_CO_TRY(check_wanted(owner.tenant, application));
  }
}

Task<void> BudgetApplications::pause(std::chrono::nanoseconds duration) {
  std::unique_ptr<EventLoop::Timer> timer;
  co_await completion<bool>([&](auto done) {
    timer = parts_.loop.after(duration, [done = std::move(done)] { done(true); });
  });
}

Status BudgetApplications::take(const Result<msg::Trimmed>& trimmed, Application& application) {
  msg::BudgetApplication& state = application.state;
  switch (trimmed.status().code()) {
    case StatusCode::kOk: break;
    case StatusCode::kNotFound: return {};  // it was removed meanwhile
    case StatusCode::kConflict:             // it was trimmed meanwhile
    case StatusCode::kCorruption:
    case StatusCode::kInvalidArgument:
      if (state.refused_segments++ == 0) state.refused = text_of(trimmed.status());
      return {};
    default: return trimmed.status();
  }
  ++state.trimmed_segments;
  state.stored_bytes += trimmed->stored_bytes;
  state.freed_bytes += trimmed->freed_bytes;
  const std::size_t layers = std::max(state.kept_mass.size(), trimmed->kept_mass.size());
  state.kept_mass.resize(layers);
  application.mass_counts.resize(layers);
  for (std::size_t l = 0; l < trimmed->kept_mass.size(); ++l) {
    state.kept_mass[l] += trimmed->kept_mass[l];
    ++application.mass_counts[l];
  }
  return {};
}

}  // namespace precis
