// Executes the requests of one client: small requests are answered from the catalog, bulk requests
// by the paths. One object per connection; it holds the client's puts and gets in progress.
#pragma once

#include <chrono>
#include <cstdint>

#include "cachesvc/server/backup_requests.h"
#include "cachesvc/server/budget_requests.h"
#include "cachesvc/server/cluster_requests.h"
#include "cachesvc/server/event_requests.h"
#include "cachesvc/server/model_requests.h"
#include "cachesvc/server/prefix_requests.h"
#include "cachesvc/server/put_requests.h"
#include "cachesvc/server/read_requests.h"
#include "cachesvc/server/session_requests.h"
#include "cachesvc/server/status_requests.h"
#include "cachesvc/server/tenant_requests.h"

namespace precis {

class Handlers {
 public:
  Handlers(Caller caller, ReadRequests::Served served);
  Handlers(const Handlers&) = delete;  // its parts refer to its caller
  Handlers& operator=(const Handlers&) = delete;

  // kPermissionDenied, before anything else, if the request needs another role than the tenant has.
  Task<Answer> handle(std::uint64_t id, msg::RequestBody body);
  // The client has disconnected: gets in progress stop at their next layer, puts are aborted.
  void cancel();
  // Aborts the puts that have received nothing for `silence`. Returns their number.
  std::size_t give_up_silent_puts(std::chrono::steady_clock::duration silence);

 private:
  Caller caller_;
  PutRequests puts_;
  ReadRequests reads_;
  ModelRequests models_;
  SessionRequests sessions_;
  PrefixRequests prefixes_;
  BudgetRequests budgets_;
  EventRequests events_;
  StatusRequests status_;
  TenantRequests tenants_;
  BackupRequests backups_;
  ClusterRequests cluster_;
};

}  // namespace precis
