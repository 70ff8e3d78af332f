#include "cachesvc/cluster/membership.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "cachesvc/cluster/drains.h"
#include "cachesvc/cluster/found_forks.h"
#include "cachesvc/cluster/node_changes.h"
#include "cachesvc/cluster/view.h"
#include "precis/placement.h"

namespace precis::cluster {
namespace {

using Time = Clock::Time;

// How long a node that can't join, or can't reach etcd, waits before it tries again; and how long
// it waits after a change, because more changes often follow.
constexpr std::chrono::milliseconds kPause{500}, kCalm{50};
// How long it trusts that etcd tells it of every change.
constexpr std::chrono::seconds kLearnAgain{60};

// A node renews its lease this often, if nothing changes. Then there is time to try again.
std::chrono::milliseconds beat_of(const Membership::Settings& settings) {
  return std::chrono::milliseconds(settings.lease) / 3;
}
// How long a member of etcd may take to answer.
std::chrono::milliseconds call_time(const Membership::Settings& settings) {
  return std::min(std::chrono::milliseconds(1000), std::chrono::milliseconds(settings.lease) / 6);
}

}  // namespace

struct Membership::Impl {
  Impl(const Settings& s, Runtime& r, Log& l, AgreedCopy& copy)
      : settings(s),
        clock(r.clock()),
        log(l),
        etcd(s.etcd, s.tls, call_time(s)),
        drains(s.etcd, s.tls, s.cluster),
        found_forks(r.random()),
        agreed({s.etcd, s.tls, s.cluster, call_time(s)}, r, l, copy),
        thread(r.make_executor("cluster", 1)) {
    thread->post([this] { run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    etcd.hurry();
    drains.hurry();
    agreed.stop();
    thread.reset();  // waits for run()
  }

  void run();
  Status step();
  Status join();
  Status write_self();
  bool has_self(const Etcd::Rows& rows) const;
  Status keep_alive();
  Status learn();
  void place();
  void write_forks();
  void drop_lease();
  void pause(std::chrono::milliseconds time);
  void note(const Status& status);
  bool is_stopping() const {
    const std::lock_guard lock(mutex);
    return stopping;
  }
  // Without the forks it could take others' paths for its own. Without the rows, budgets differ.
  bool is_member() const {
    return joined && clock.now() < lease_end && view.forks_known && agreed.known();
  }
  Status check_owner(std::uint32_t shard) const;
  msg::ClusterState state() const;
  Owned owned() const;
  void note_end_of_lease();

  const Settings settings;
  const Clock& clock;
  Log& log;

  // Used by run() alone.
  std::string row;      // of this node in etcd: the value
  Time asked;           // when the lease was last asked for
  bool known = false;   // the view is of this lease, and nothing has changed since
  Time learned;         // when
  bool watches = true;  // the last wait for a change did not fail
  Etcd etcd;
  Etcd::Lease lease = 0;  // 0: none
  // Since when, and over which revision, the table of owners could be better.
  std::optional<Time> misplaced_since;
  std::uint64_t misplaced_revision = 0;
  std::atomic<std::uint64_t> least_epoch = 0;

  Drains drains;
  FoundForks found_forks;
  AgreedRows agreed;

  mutable std::mutex mutex;  // guards the rest; run() alone changes it
  std::condition_variable changed;
  bool stopping = false;
  Time lease_end;           // the node is a member until then
  bool joined = false;      // has a lease, which may have run out, and the view is not older
  bool was_member = false;  // since the start
  bool end_told = false;    // the log has the end of this lease
  Status problem;
  View view;
  std::string instance;  // of the view

  std::unique_ptr<Executor> thread;  // the last: it ends before the rest does
};

// A lease counts from before the request that began or prolonged it, so that it never ends later
// here than in etcd. The node is a member once it has learned who owns what since it joined.
Status Membership::Impl::join() {
  known = false;
  PRECIS_TRY(agreed.join());  // before it owns anything
  PRECIS_ASSIGN(const Etcd::Rows others, etcd.read(rows_prefix(settings.cluster)));
  PRECIS_TRY(check_storage(read_view(settings.cluster, others), settings.node, settings.storage));
  asked = clock.now();
  PRECIS_ASSIGN(lease, etcd.grant(settings.lease));
  row = to_json(NodeRow{settings.address, settings.version, settings.weight, std::to_string(lease),
                        settings.storage});
  const Status written = write_self();
  if (!written.ok()) drop_lease();
  return written;
}

Status Membership::Impl::write_self() {
  const std::string key = node_key(settings.cluster, settings.node);
  const Status written = etcd.write({key, row, 0}, lease);
  if (written.code() != StatusCode::kConflict) return written;
  PRECIS_ASSIGN(const Etcd::Rows there, etcd.read(key));
  if (has_self(there)) return {};  // a member wrote it and did not answer in time
  return Status::conflict("another node of the cluster has the name '" + settings.node +
                          "'. If it is this one before its restart, the name is free " +
                          std::to_string(settings.lease.count()) +
                          " s after its end; otherwise set cluster_node to another name");
}

bool Membership::Impl::has_self(const Etcd::Rows& rows) const {
  const std::string key = node_key(settings.cluster, settings.node);
  return std::ranges::any_of(
      rows.rows, [&](const Etcd::Row& other) { return other.key == key && other.value == row; });
}

Status Membership::Impl::keep_alive() {
  const Time now = clock.now();
  const Status kept = etcd.keep_alive(lease);
  if (kept.code() == StatusCode::kNotFound) drop_lease();
  PRECIS_TRY(kept);
  asked = now;
  const std::lock_guard lock(mutex);
  if (joined) lease_end = asked + settings.lease;
  return {};
}

void Membership::Impl::drop_lease() {
  static_cast<void>(etcd.revoke(std::exchange(lease, 0)));
  known = false;
  const std::lock_guard lock(mutex);
  joined = false;
}

Status Membership::Impl::learn() {
  known = false;
  PRECIS_ASSIGN(const Etcd::Rows rows, etcd.read(rows_prefix(settings.cluster)));
  if (!has_self(rows)) {
    drop_lease();
    return Status::unavailable("the node's row in etcd is gone, so it joins again");
  }
  View next = read_view(settings.cluster, rows);
  log_changes(view, next, settings.node, log);
  known = true;
  learned = clock.now();
  const std::lock_guard lock(mutex);
  view = std::move(next);
  instance = std::to_string(lease);
  was_member = joined = true;
  end_told = false;
  lease_end = asked + settings.lease;
  return {};
}

// Any node may write a better table of owners, and etcd takes one of several. So that thousands do
// not try, the first node by name writes it at once, and the others if it has not for a while.
void Membership::Impl::place() {
  const auto better = better_owners(settings.cluster, view, least_epoch);
  if (!better) return misplaced_since.reset();
  if (!misplaced_since || misplaced_revision != view.owners_revision) {
    misplaced_since = clock.now();
    misplaced_revision = view.owners_revision;
  }
  const auto first = std::ranges::find_if(view.nodes, &msg::ClusterNode::live);
  const bool is_first = first != view.nodes.end() && first->name == settings.node;
  if (!is_first && clock.now() - *misplaced_since < beat_of(settings)) return;
  const Status written = etcd.write(*better);
  if (!written.ok()) log.debug("owners not written", {{"error", written.message()}});
}

// If another node writes forks meanwhile, etcd takes only one, and this one finds its own again.
void Membership::Impl::write_forks() {
  const Forks found = found_forks.take();
  if (found.empty() || !view.forks_known) return;
  const Forks forks = with_found(*view.forks, found);
  if (forks.size() == limits::kForksMax) {
    log.warn("no more forks are made, so shards may be uneven", {{"limit", limits::kForksMax}});
  }
  if (forks.size() == view.forks->size()) return;
  const Status written = etcd.write(forks_row(settings.cluster, forks, view.forks_revision));
  log.debug("forks", {{"count", forks.size()}, {"status", written.to_string()}});
}

// A node that reaches etcd renews its lease first, whatever else fails.
Status Membership::Impl::step() {
  PRECIS_TRY(lease == 0 ? join() : keep_alive());
  if (!known || clock.now() - learned > kLearnAgain) PRECIS_TRY(learn());
  place();
  write_forks();
  agreed.note(view.agreed_revision, view.agreed);
  if (watches) note(view.problem.ok() ? agreed.problem() : view.problem);
  const auto wakes =
      etcd.await_change(rows_prefix(settings.cluster), view.revision, beat_of(settings));
  watches = wakes.ok();
  known = watches && !*wakes;
  PRECIS_TRY(wakes.status());
  if (known) return {};
  pause(kCalm);
  return {};
}

void Membership::Impl::run() {
  while (!is_stopping()) {
    const Status status = step();
    if (status.ok() || is_stopping()) continue;
    note(status);
    note_end_of_lease();
    pause(kPause);
  }
  if (lease != 0) static_cast<void>(etcd.revoke(lease));
}

void Membership::Impl::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex);
  clock.wait(changed, lock, clock.now() + time, [this] { return stopping; });
}

// A problem that lasts is logged once, though its message may change.
void Membership::Impl::note(const Status& status) {
  std::unique_lock lock(mutex);
  const bool same = problem.code() == status.code();
  problem = status;
  lock.unlock();
  if (same) return;
  if (status.ok()) {
    log.info("cluster in order", {{"cluster", settings.cluster}, {"node", settings.node}});
  } else {
    log.warn("cluster in trouble", {{"cluster", settings.cluster}, {"error", status.message()}});
  }
}

void Membership::Impl::note_end_of_lease() {
  const bool ended = was_member && (!joined || clock.now() >= lease_end);
  if (ended && !std::exchange(end_told, true)) {
    log.warn("cut off: the lease has ended", {{"error", problem.message()}});
  }
}

msg::ClusterState Membership::Impl::state() const {
  const std::lock_guard lock(mutex);
  msg::ClusterState state;
  state.name = settings.cluster;
  state.node = settings.node;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(lease_end - clock.now());
  if (joined && left.count() > 0) state.lease_left_ms = static_cast<std::uint32_t>(left.count());
  state.state = is_member() ? "member" : was_member ? "cut_off" : "joining";
  state.error = problem.message();
  state.lease_ms = static_cast<std::uint32_t>(settings.lease.count() * 1000);
  state.revision = view.owners_revision;
  state.nodes = view.nodes;
  state.owners = view.owners;
  for (const auto& [block, blocks] : *view.forks) state.forks.push_back({block, blocks});
  return state;
}

Membership::Owned Membership::Impl::owned() const {
  const std::lock_guard lock(mutex);
  Owned owned;
  owned.is_member = is_member();
  owned.epoch = view.owners_epoch;
  owned.instance = instance;
  owned.instances = view.instances;
  owned.shards = owned_shards(view, settings.node);
  return owned;
}

Status Membership::Impl::check_owner(std::uint32_t shard) const {
  const std::lock_guard lock(mutex);
  if (!is_member()) {
    return Status::moved("the node '" + settings.node + "' is not a member of the cluster '" +
                         settings.cluster + "' now");
  }
  return check_owned(view, shard, settings.node);
}

Membership::Membership(const Settings& settings, Runtime& runtime, Log& log, AgreedCopy& copy)
    : impl_(std::make_unique<Impl>(settings, runtime, log, copy)) {}
Membership::~Membership() = default;

msg::ClusterState Membership::state() const { return impl_->state(); }
AgreedRows& Membership::agreed() { return impl_->agreed; }
std::vector<std::string> Membership::others_for(const std::string& key, std::size_t count) const {
  const std::lock_guard lock(impl_->mutex);
  return cluster::others_for(impl_->view, impl_->settings.node, key, count);
}
void Membership::raise_epoch(std::uint64_t least) { impl_->least_epoch = least; }
Membership::Owned Membership::owned() const { return impl_->owned(); }
bool Membership::is_instance(std::string_view instance) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->instance == instance;
}
Status Membership::check_owner(std::uint32_t shard) const { return impl_->check_owner(shard); }
void Membership::note_put(const std::string& tenant, const ForkFinder::Put& put) {
  // A path that ends before its fork divides needs no other fork.
  if (!forks()->contains(put.decides)) impl_->found_forks.note(tenant, put);
}
std::shared_ptr<const Forks> Membership::forks() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->view.forks;
}

Result<msg::ClusterState> Membership::drain(const std::string& node, bool on) {
  PRECIS_TRY(impl_->drains.set(node, on));
  msg::ClusterState told = state();
  for (msg::ClusterNode& shown : told.nodes) {
    if (shown.name == node) shown.draining = on;
  }
  return told;
}

}  // namespace precis::cluster
