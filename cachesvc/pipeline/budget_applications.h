// Applies changes of budgets to what is stored: trims the concerned segments (concerned_segments.h)
// in the background, or counts what that would do. Trims of a tenant are made for one change at a
// time, and a count waits for them. They take turns with the requests of all tenants. Loop thread
// only.
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
  // Ends a running count, begins an application, and returns its number. The application is
  // canceled once the tenant has a newer revision than `revision`. `owner`: the tenant, without a
  // connection. Errors as check_free().
  Result<std::uint64_t> start(const Owner& owner, BudgetsToApply budgets, std::uint64_t revision,
                              bool dry_run);
  struct Agreed {
    std::uint64_t number = 0;  // at all nodes
    std::uint64_t revision = 0;
    bool dry_run = false;
    std::uint64_t asked_unix_ms = 0;  // numbers begin again if etcd is restored
    bool operator==(const Agreed&) const = default;
  };
  // In a cluster: ends a running count, and begins an application that all nodes begin. It waits
  // for running trims for the same revision, and ends those for another one. If this application
  // has begun before, it is applied again, and the results are added; a count or a canceled
  // application is not applied again.
  void follow(const Owner& owner, BudgetsToApply budgets, const Agreed& agreed);
  // Whether follow() has begun this one, and no later one.
  bool has_begun(const std::string& tenant, const Agreed& agreed) const;
  // In a cluster: ends the tenant's count, or all its trims.
  void end(const std::string& tenant, bool dry_run);
  // Returns the tenant's trims that run, or else the application that began last.
  msg::BudgetApplication state(const std::string& tenant) const;
  // Returns kConflict if another one than `number` runs; 0: cancels all that run.
  Result<msg::BudgetApplication> cancel(const std::string& tenant, std::uint64_t number);
  // Cancels the tenant's applications and forgets them.
  void forget(const std::string& tenant);
  void stop() { stopped_ = true; }
  bool busy() const { return running_ > 0; }

 private:
  struct Application;
  using Shared = std::shared_ptr<Application>;
  struct Application {
    Agreed which;
    msg::BudgetApplication state;
    Shared before;       // earlier trims, whose end it waits for; null once it has begun
    bool again = false;  // apply it once more
    std::weak_ptr<Application> next;         // the last one that waits for its end
    std::function<void(bool)> resume;        // set while it waits
    std::vector<std::uint64_t> mass_counts;  // [layers], of state.kept_mass, which are sums
    bool canceled = false;
    bool runs() const { return state.ended_unix_ms == 0 && !canceled; }
  };
  void begin(const Owner& owner, BudgetsToApply budgets, const Agreed& which);
  struct OfTenant {
    Shared trims;  // the latest
    Shared count;  // the latest, if it began after the trims
  };
  static bool runs(const Shared& application) { return application && application->runs(); }
  void end(Application& application);
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
  std::map<std::string, OfTenant> tenants_;
  std::uint64_t started_ = 0;
  std::size_t running_ = 0;
  bool stopped_ = false;
};

}  // namespace precis
