// The parts of a service, wired by service.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cachesvc/server/background.h"
#include "cachesvc/server/disk_watch.h"
#include "cachesvc/server/greeter.h"
#include "cachesvc/server/joined_cluster.h"
#include "cachesvc/server/lease_sweeper.h"
#include "cachesvc/server/log_limiter.h"
#include "cachesvc/server/operator_access.h"
#include "cachesvc/server/peers.h"
#include "cachesvc/server/reload.h"
#include "cachesvc/server/service.h"
#include "cachesvc/server/service_report.h"
#include "cachesvc/server/shared_storage.h"
#include "cachesvc/server/tenants_in_force.h"
#include "cachesvc/server/wrong_proofs.h"

namespace precis {

// These threads mostly wait. At most kStorageThreads commits share one sync (commit_queue.h).
inline constexpr unsigned kStorageThreads = 8, kReadThreads = 4;

struct Service::Impl {
  Impl(const Config& c, Runtime& r, Log::Level level)
      : runtime(r),
        config(c),
        log(level),
        audit(log, metrics, r),
        tenants(c.tenants),
        admission({c.max_requests, c.max_message_bytes, c.max_puts}, c.tenants) {}

  // In order of dependency; destroyed from last to first.
  Runtime& runtime;
  Config config;
  Log log;
  const Clock& clock{runtime.clock()};
  Metrics metrics;
  Audit audit;
  Tenants tenants;
  WrongProofs wrong_proofs{clock};
  Admission admission;
  Greeter greeter{{tenants, wrong_proofs, admission, metrics, audit, log, config}};
  LogLimiter requests;  // limits the log of refused requests
  EventLog events{runtime.random()};
  Tracer tracer{runtime, metrics, log, config};
  const std::unique_ptr<EventLoop> own_loop{runtime.make_loop()};
  EventLoop& loop{*own_loop};
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena::Buffer> zeros;
  std::unique_ptr<HotTier> hot_tier;
  std::unique_ptr<PayloadMemory> memory;
  std::unique_ptr<SharedStorage> shared;  // null: the node shares none
  std::unique_ptr<Store> store;           // its unwritten values lie in the arena
  std::unique_ptr<DiskWatch> disk_watch;
  KnownLoss loss;
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<kernels::Backend> backend;
  RestoreRate rate{clock};
  PathHasher paths{loop, runtime.make_executor("paths", 1), runtime.random()};
  FairTurns turns{loop, clock};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Registration> registration;
  std::unique_ptr<PutRoom> put_room;
  std::unique_ptr<DiskQuota> disk_quota;
  PrefillRate prefill;
  std::unique_ptr<Lookup> lookup;
  std::unique_ptr<Executor> compute;      // one thread for each compressor of the backend
  std::unique_ptr<LeaseSweeper> sweeper;  // the next one runs its work
  FairExecutor storage{runtime.make_executor("storage", kStorageThreads)};
  FairExecutor reads{runtime.make_executor("reads", kReadThreads)};
  FairExecutor changes{runtime.make_executor("changes", 1)};  // of settings
  std::unique_ptr<Projections> projections;
  std::unique_ptr<ColdReads> cold_reads;
  std::unique_ptr<PutPath> put_path;
  std::unique_ptr<GetPath> get_path;
  std::unique_ptr<TrimPath> trim_path;
  Background background;
  std::unique_ptr<TenantsInForce> in_force;
  std::unique_ptr<Reloader> reloader;
  std::unique_ptr<HandlerParts> parts;
  std::unique_ptr<ServiceReport> report;
  Peers peers{loop};
  std::unique_ptr<OperatorAccess> operators;
  std::string address;
  JoinedCluster cluster;
  std::uint64_t dropped_told = 0;
  bool stopping = false;
  std::unique_ptr<EventLoop::Timer> stop_timer, pressure_timer;

  Status open(const OpenStore& open_store);
  Status open_store(const OpenStore& open_store);
  void wire_paths();
  void wire_requests();
  Status listen();
  void watch_pressure();
  void begin_stop();
  void finish_stop();
};

}  // namespace precis
