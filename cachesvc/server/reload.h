// Applies a configuration that was read again to the running service: tenants, limits, the log
// level, the audit log and the TLS files. It applies all of it or nothing. Loop thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/task.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/read_tls.h"
#include "cachesvc/server/tenants_in_force.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Reloader {
 public:
  // The parts that a configuration changes. All outlive the reloader.
  struct Parts {
    EventLoop& loop;
    FairExecutor& storage;
    Config& config;  // in force
    Log& log;
    TenantsInForce& in_force;
    Admission& admission;
    PayloadMemory& memory;
    PutRoom& put_room;
    DiskQuota& disk_quota;
    CapacityManager& capacity;
    Consolidator& consolidator;
    Audit& audit;
    Transport& transport;
  };
  using Read = std::function<Result<Config>()>;

  explicit Reloader(Parts parts) : parts_(std::move(parts)) {}

  // Calls `read` on a storage thread, applies the configuration that it returns, and calls `done`.
  // Nothing changes, and the log says why, if `read` fails, the configuration is not valid, its
  // audit log cannot be opened, a TLS file is wrong, or it would admit everybody where a token was
  // required before. If reloads arrive during another one, only the latest of them runs, after it,
  // and at its end each `done` is called.
  void reload(Read read, std::function<void()> done);
  // Calls `use` with the admin port's TLS settings after each reload, if that port has TLS.
  using UseTls = std::function<void(std::shared_ptr<TlsContext>)>;
  void on_admin_tls(UseTls use) { use_admin_tls_ = std::move(use); }
  // Returns whether a reload is in progress.
  bool busy() const { return busy_; }

 private:
  struct Next {
    Config config;
    Log::Level level;
    Audit::Sink audit;
    // Null if the configuration names no files.
    std::shared_ptr<TlsContext> tls, admin_tls;
  };
  Task<void> run();
  static Result<Next> prepare(const Read& read);
  void refuse(const Status& why);
  void apply(Next next);
  void tell_removed_tenants(const Config& before) const;
  void tell_lower_limits(const Config& before) const;

  // The reloads that have not begun.
  struct Waiting {
    Read read;                                // of the latest
    std::vector<std::function<void()>> done;  // of all
  };

  const Parts parts_;
  UseTls use_admin_tls_;
  bool busy_ = false;
  Waiting waiting_;
};

}  // namespace precis
