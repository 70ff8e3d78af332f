// Applies changes of budgets to what is stored: trims the concerned segments (concerned_segments.h)
// in the background, or counts what that would do. One at a time for each tenant. The trims take
// turns with the requests of all tenants. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/log.h"
#include "cachesvc/pipeline/concerned_segments.h"
#include "cachesvc/pipeline/trim.h"

namespace precis {

class BudgetApplications {
 public:
  // All must outlive this object.
  struct Parts {
    EventLoop& loop;
    FairExecutor& lists;  // for the choice, which looks at all segments of the tenant
    TrimPath& trim;
    const Catalog& catalog;
    const Clock& clock;
    Log& log;
    BudgetDefaults configured;
  };
  explicit BudgetApplications(Parts parts) : parts_(std::move(parts)) {}

  // Returns kConflict while trims for an earlier change run.
  Status check_free(const std::string& tenant) const;
  // Begins an application, and returns its number. A count that runs ends. It is canceled when the
  // tenant's newest revision is no longer `revision`. `owner`: the tenant, without a connection.
  // Errors as check_free().
  Result<std::uint64_t> start(const Owner& owner, BudgetsToApply budgets, std::uint64_t revision,
                              bool dry_run);
  struct Agreed {
    std::uint64_t number = 0;  // at all nodes
    std::uint64_t revision = 0;
    bool dry_run = false;
  };
  // In a cluster: begins an application that all nodes begin. Trims for the same revision go on
  // before it, and whatever else runs ends. If the latest one has this number, it is applied again,
  // and what that does is added to what it has done; a count, or one that was canceled, is not.
  void follow(const Owner& owner, BudgetsToApply budgets, const Agreed& agreed);
  // Returns the tenant's application that runs, or else the one that ran last.
  msg::BudgetApplication state(const std::string& tenant) const;
  // Returns kConflict if another one than `number` runs; 0: cancels all that run.
  Result<msg::BudgetApplication> cancel(const std::string& tenant, std::uint64_t number);
  // Cancels the tenant's application and forgets it.
  void forget(const std::string& tenant);
  void stop() { stopped_ = true; }
  bool busy() const { return running_ > 0; }

 private:
  struct Application;
  using Shared = std::shared_ptr<Application>;
  struct Application {
    msg::BudgetApplication state;
    Shared before;       // the tenant's earlier one, whose end it waits for; null once it has begun
    bool again = false;  // apply it once more
    std::weak_ptr<Application> next;         // the last one that waits for its end
    std::function<void(bool)> resume;        // set while it waits
    std::vector<std::uint64_t> mass_counts;  // [layers], of state.kept_mass, which are sums
    bool canceled = false;
    bool runs() const { return state.ended_unix_ms == 0 && !canceled; }
  };
  void begin(const Owner& owner, BudgetsToApply budgets, const Agreed& which);
  void end(Application& application);
  void end_all(Application* latest);  // also those that it waits for
  Task<void> run(Owner owner, BudgetsToApply budgets, Shared application);
  void wake(Application& application);  // ends its wait
  Task<Status> apply(const Owner& owner, const BudgetsToApply& budgets, Application& application);
  // Tries again for a while if the service is busy.
  Task<Result<msg::Trimmed>> trim(const Owner& owner, const msg::TrimPrefix& request,
                                  const Application& application);
  Task<void> pause(std::chrono::nanoseconds duration);
  Status check_wanted(const std::string& tenant, const Application& application) const;
  // Counts the result. An error ends the application.
  static Status take(const Result<msg::Trimmed>& trimmed, Application& application);
  static msg::BudgetApplication described(const Application& application);

  const Parts parts_;
  std::map<std::string, Shared> applications_;  // by tenant, the latest
  std::uint64_t started_ = 0;
  std::size_t running_ = 0;
  bool stopped_ = false;
};

}  // namespace precis
