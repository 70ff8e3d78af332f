// Takes up a configuration that was read again, while the service runs: tenants, limits, the log's
// level, the audit log and TLS's files. All of it or nothing. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/memory.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/read_tls.h"
#include "cachesvc/server/tenants.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Reloader {
 public:
  // The parts that a configuration changes; all outlive the reloader.
  struct Parts {
    EventLoop& loop;
    FairExecutor& storage;
    Config& config;  // that is in force
    Log& log;
    Tenants& tenants;
    Admission& admission;
    Memory& memory;
    PutRoom& put_room;
    Audit& audit;
    Transport& transport;
    // Ends the connections of a tenant, saying why, and the waits after wrong tokens of one that is
    // still there.
    std::function<void(const std::string& tenant, const std::string& why)> end_tenant;
  };
  using Read = std::function<Result<Config>()>;

  explicit Reloader(Parts parts) : parts_(std::move(parts)) {}

  // Calls `read` on a storage thread, takes up the configuration that it returns, and
  // calls `done`. If `read` fails, the configuration is not valid, its audit log can't be opened, a
  // file of TLS is wrong, or it would let in everybody where a token was asked for, nothing changes
  // and the log says why. A reload that comes while another is under way is done after it.
  void reload(Read read, std::function<void()> done);
  // True while a reload is under way.
  bool busy() const { return busy_; }

 private:
  struct Next {
    Config config;
    Log::Level level;
    Audit::Sink audit;
    std::shared_ptr<TlsContext> tls;  // null where it names none
  };
  Task<void> run(Read read, std::function<void()> done);
  static Result<Next> prepare(const Read& read);
  void refuse(const Status& why);
  void take_up(Next next);
  void end_changed_tenants(const Config& before);

  const Parts parts_;
  bool busy_ = false;
  std::function<void()> waiting_;  // the latest that came meanwhile
};

}  // namespace precis
