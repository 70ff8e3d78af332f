#include "cachesvc/server/service.h"

#include <algorithm>
#include <utility>

#include "cachesvc/server/device.h"
#include "cachesvc/server/disk_mark.h"
#include "cachesvc/server/openness.h"
#include "cachesvc/server/part_settings.h"
#include "cachesvc/server/service_impl.h"
#include "cachesvc/server/version.h"
#include "cachesvc/store/extent_store.h"
#include "precis/limits.h"
#include "precis/record_format.h"

namespace precis {
namespace {

constexpr std::chrono::milliseconds kStopCheck{5}, kPressureCheck{1000};
// The hot tier leaves 1/kStagingShare of the memory free, and so do the promises to puts.
// Acknowledged values that are not yet written take at most 1/kWriteBehindShare, so that the
// service works with the rest while the disk is slow or full.
constexpr std::uint64_t kStagingShare = 4, kWriteBehindShare = 4;

}  // namespace

Result<std::unique_ptr<Service>> Service::create(const Config& config, Runtime& runtime,
                                                 const MakeTransport& make_transport,
                                                 const OpenStore& open_store) {
  PRECIS_TRY(config.validate());
  PRECIS_ASSIGN(const Log::Level level, Log::parse_level(config.log_level));
  auto impl = std::make_unique<Impl>(config, runtime, level);
  PRECIS_ASSIGN(Audit::Sink sink, Audit::Sink::open(config.audit_log));
  impl->audit.use(std::move(sink));
  PRECIS_TRY(impl->open(open_store));
  PRECIS_ASSIGN(impl->transport, make_transport(impl->loop));
  if (impl->backend->expects_memory() || impl->transport->rdma() != "off") impl->arena->pin();
  PRECIS_ASSIGN(impl->registration, impl->transport->register_memory(impl->arena->memory()));
  impl->wire_paths();
  impl->wire_requests();
  PRECIS_TRY(impl->listen());
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

Status Service::Impl::open(const OpenStore& open_disk) {
  const std::uint64_t memory_bytes = config.resolved_memory_bytes();
  PRECIS_ASSIGN(arena, Arena::create(memory_bytes));
  PRECIS_ASSIGN(zeros, arena->allocate(kSectionAlign));
  std::fill(zeros->bytes().begin(), zeros->bytes().end(), std::byte{0});
  hot_tier =
      std::make_unique<HotTier>(memory_bytes - memory_bytes / kStagingShare, make_s3_fifo_policy);
  PRECIS_TRY(with_next_step(open_store(open_disk), config.data_dir));
  PRECIS_ASSIGN(backend, choose_backend(config, arena->memory(), log));
  compute = runtime.make_executor("compute", backend->compressors());
  return {};
}

Status Service::Impl::open_store(const OpenStore& open_disk) {
  close_data_dir(log, config.data_dir);
  const std::size_t unwritten_max = arena->memory().size() / kWriteBehindShare;
  PRECIS_ASSIGN(store, open_disk(config.data_dir,
                                 {.write_behind_bytes = unwritten_max,
                                  .tidy_after = std::chrono::milliseconds(config.tidy_after_ms),
                                  .min_free_bytes = config.min_free_bytes}));
  PRECIS_ASSIGN(shared, SharedStorage::connect(config, runtime, log, unwritten_max));
  if (shared) store = shared->behind(std::move(store));
  warn_of_raised_mark(log, config);
  disk_watch = std::make_unique<DiskWatch>(*store, log, loop, runtime);
  loss = warn_of_loss(log, *store);
  PRECIS_ASSIGN(catalog, Catalog::open(*store, clock, kept_bytes_max(arena->memory().size()),
                                       /*in_shards=*/shared != nullptr));
  return {};
}

void Service::Impl::wire_paths() {
  memory = std::make_unique<PayloadMemory>(*arena, *hot_tier, loop,
                                           std::chrono::milliseconds(config.memory_wait_ms));
  sweeper = std::make_unique<LeaseSweeper>(storage, *catalog, *disk_watch);
  put_room = std::make_unique<PutRoom>(
      loop, arena->memory().size() - arena->memory().size() / kStagingShare,
      std::chrono::milliseconds(config.memory_wait_ms),
      [this](const std::string& tenant, std::optional<std::size_t> rest) {
        hot_tier->limit_tenant(tenant, rest);
      });
  disk_quota = std::make_unique<DiskQuota>(
      loop,
      [this](const std::string& tenant) {
        return (tenant.empty() ? catalog->totals() : catalog->totals(tenant)).stored_bytes;
      },
      disk_limits(config), std::chrono::milliseconds(config.memory_wait_ms));
  FairExecutor& rows = shared ? changes : storage;
  projections = std::make_unique<Projections>(Projections::Parts{
      loop, *compute, storage, rows, reads, *memory, *registration, *catalog, *hot_tier, log});
  cold_reads = std::make_unique<ColdReads>(ColdReads::Parts{loop, reads, storage, *memory, *catalog,
                                                            *hot_tier, rate, metrics, log, clock});
  put_path = std::make_unique<PutPath>(
      PutParts{loop, *compute, storage, reads, *cold_reads, *memory, *registration,
               arena->memory().size(), *backend, *catalog, paths, *hot_tier, *projections,
               *put_room, *disk_quota, prefill, metrics, clock, budget_defaults(config)});
  lookup = std::make_unique<Lookup>(Lookup::Parts{
      loop, reads, paths, rate, clock, {*cold_reads, *memory, *catalog, *hot_tier, metrics}});
  get_path = std::make_unique<GetPath>(GetPath::Parts{loop, reads, *cold_reads, *memory,
                                                      *registration, zeros->bytes(), *catalog,
                                                      *hot_tier, rate, metrics, clock});
  trim_path = std::make_unique<TrimPath>(
      RewriteParts{loop, reads, storage, *cold_reads, *memory, *catalog, *hot_tier, metrics});
  background.capacity = std::make_unique<CapacityManager>(
      CapacityManager::Parts{loop, storage, *disk_quota, *trim_path, *catalog, *hot_tier, *memory,
                             prefill, metrics, log, clock},
      capacity_settings(config));
  background.consolidator = std::make_unique<Consolidator>(
      Consolidator::Parts{loop, reads, storage, *cold_reads, *memory, *catalog, *hot_tier,
                          *put_room, *disk_quota, *put_path, arena->memory().size(), metrics, log},
      consolidator_settings(config));
  background.totals = std::make_unique<SessionTotals>(
      SessionTotals::Parts{loop, storage, *trim_path, *catalog, *background.consolidator, log});
  background.applications = std::make_unique<BudgetApplications>(BudgetApplications::Parts{
      loop, paths.turns(), *trim_path, *catalog, clock, log, budget_defaults(config)});
}

void Service::Impl::wire_requests() {
  background.backups = std::make_unique<Backups>(
      Backups::Parts{*store, clock, log, config.backup_dir, config.data_dir,
                     config.backup_dir.empty() ? nullptr : runtime.make_executor("backup", 1)});
  in_force = std::make_unique<TenantsInForce>(TenantsInForce::Parts{
      config, *catalog, log, tenants, admission, *put_room, *hot_tier, *disk_quota, wrong_proofs,
      peers, [this](const std::string& tenant) { operators->end_streams(tenant); }, events,
      metrics});
  reloader = std::make_unique<Reloader>(Reloader::Parts{
      loop, storage, config, log, *in_force, admission, *memory, *put_room, *disk_quota,
      *background.capacity, *background.consolidator, audit, *transport});
  report = std::make_unique<ServiceReport>(ServiceReport::Parts{
      config, clock, metrics, admission, *arena, *hot_tier, *memory, *put_room, *disk_quota,
      *disk_watch, loss, *catalog, *backend, paths, *transport, cluster.membership, shared});
  parts = std::make_unique<HandlerParts>(
      HandlerParts{loop,
                   storage,
                   reads,
                   changes,
                   *catalog,
                   *hot_tier,
                   *projections,
                   *put_path,
                   *get_path,
                   *cold_reads,
                   *trim_path,
                   *background.consolidator,
                   *background.totals,
                   *background.applications,
                   *lookup,
                   paths,
                   turns,
                   *memory,
                   admission,
                   *in_force,
                   *background.backups,
                   metrics,
                   clock,
                   log,
                   audit,
                   events,
                   tracer,
                   requests,
                   budget_defaults(config),
                   [this](const std::string& tenant) { return report->status(tenant); },
                   [this](const std::string& tenant) { return report->stats(tenant); },
                   [this](const std::string& tenant, std::size_t size_bytes) {
                     return peers.may_send(config.max_message_bytes, tenant, size_bytes);
                   }});
  operators = std::make_unique<OperatorAccess>(
      OperatorAccess::Parts{tenants, peers, *parts, greeter, *report, *reloader, stopping});
  record_events(*catalog, loop, metrics, events);
}

Status Service::Impl::listen() {
  in_force->stored_changed();
  in_force->warn();
  watch_pressure();
  auto bound = transport->listen(
      config.listen,
      {[this](const Transport::LoginAttempt& attempt) { return greeter.greet(attempt); },
       [this](std::unique_ptr<Connection> connection, const Hello& hello) {
         peers.add(std::make_shared<Peer>(*parts, greeter.admitted(), hello.client,
                                          std::move(connection)));
       },
       [this](const std::string& from, const Status& why) {
         greeter.note_refused({.from = from}, why);
       }});
  if (!bound.ok()) return bound.status().with_context("listen");
  address = std::move(bound).value();
  const std::size_t descriptors = descriptors_max();
  admission.connections.set_limit(connections_for(descriptors, kStoreDescriptorsMax));
  report->log_serving(log, address, descriptors);
  warn_if_open(log, config, *transport, address);
  warn_of_exposed_files(log, config);
  PRECIS_ASSIGN(cluster, join_cluster(config, address, runtime, *parts, shared.get(),
                                      {*store, *disk_watch, *disk_quota}));
  return {};
}

// Runs every second. While requests wait for memory, clients that make no progress lose the memory
// that they hold.
void Service::Impl::watch_pressure() {
  pressure_timer = loop.after(kPressureCheck, [this] {
    const auto fired = std::move(pressure_timer);  // lives until the end of its own call
    if (stopping) return;
    greeter.tell_suppressed();
    requests.tell_suppressed(log);
    background.capacity->check();
    if (memory->waiting() + put_room->waiting() + disk_quota->waiting() > 0) {
      peers.free_for_waiters(std::chrono::milliseconds(config.silent_client_ms));
    }
    sweeper->sweep();
    warn_of_dropped(log, catalog->dropped_segments(), dropped_told);
    audit.tell_suppressed();
    watch_pressure();
  });
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;
const std::string& Service::address() const { return impl_->address; }
EventLoop& Service::loop() { return impl_->loop; }
OperatorAccess& Service::operators() { return *impl_->operators; }
void Service::run() { impl_->loop.run(); }
void Service::stop() {
  impl_->loop.post([impl = impl_.get()] { impl->begin_stop(); });
}

void Service::reload(std::function<Result<Config>()> read, std::function<void()> done) {
  impl_->loop.post([impl = impl_.get(), read = std::move(read), done = std::move(done)] {
    impl->reloader->reload(read, [impl, done] {
      warn_if_open(impl->log, impl->config, *impl->transport, impl->address);
      done();
    });
  });
}

void Service::Impl::begin_stop() {
  if (std::exchange(stopping, true)) return;
  log.info("stopping", {{"connections", peers.size()}});
  transport->stop_listening();
  memory->stop();
  put_room->stop();
  disk_quota->stop();
  if (shared) shared->uploads->stop_waiting();
  if (cluster.membership) cluster.membership->agreed().stop();
  background.stop();
  peers.close_all("the service is stopping");
  finish_stop();
}

// A request in progress holds its peer. The loop stops when no work is in progress.
void Service::Impl::finish_stop() {
  if (peers.all_ended() && put_path->idle() && !reloader->busy() && !background.busy()) {
    log.info("stopped");
    return loop.stop();
  }
  stop_timer = loop.after(kStopCheck, [this] { finish_stop(); });
}

}  // namespace precis
