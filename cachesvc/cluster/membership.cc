#include "cachesvc/cluster/membership.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "cachesvc/cluster/view.h"

namespace precis::cluster {
namespace {

using Time = Clock::Time;

// How long a node that can't join, or can't reach etcd, waits before it tries again; and how long
// it waits after a change, because more changes often follow.
constexpr std::chrono::milliseconds kPause{500}, kCalm{50};

// A node renews its lease this often, if nothing changes. Two of three requests may fail.
std::chrono::milliseconds beat_of(const Membership::Settings& settings) {
  return std::chrono::milliseconds(settings.lease) / 3;
}
// How long a member of etcd may take to answer.
std::chrono::milliseconds call_time(const Membership::Settings& settings) {
  return std::min(std::chrono::milliseconds(1000), std::chrono::milliseconds(settings.lease) / 6);
}

}  // namespace

struct Membership::Impl {
  Impl(const Settings& s, Runtime& r, Log& l)
      : settings(s),
        clock(r.clock()),
        log(l),
        self{s.address, s.version, s.weight, std::to_string(r.random())},
        etcd(s.etcd, s.tls, call_time(s)),
        drains(s.etcd, s.tls),
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
    thread.reset();  // waits for run()
  }

  void run();
  Status step();
  Status join();
  Status write_self();
  Status keep_alive();
  Status learn();
  void place();
  void drop_lease();
  void pause(std::chrono::milliseconds time);
  void note(const Status& status);
  void note_nodes(const View& next);
  bool is_stopping() const {
    const std::lock_guard lock(mutex);
    return stopping;
  }
  msg::ClusterState state() const;

  const Settings settings;
  const Clock& clock;
  Log& log;
  const NodeRow self;

  // Used by run() alone.
  Etcd etcd;
  Etcd::Lease lease = 0;  // 0: none
  // Since when, and over which revision, the table of owners could be better.
  std::optional<Time> misplaced_since;
  std::uint64_t misplaced_revision = 0;

  std::mutex drains_mutex;  // guards the next
  Etcd drains;              // for drain()

  mutable std::mutex mutex;  // guards the rest; run() alone changes it
  std::condition_variable changed;
  bool stopping = false;
  Time lease_end;       // the node is a member until then
  bool joined = false;  // has a lease, which may have run out since
  Status problem;
  View view;

  std::unique_ptr<Executor> thread;  // the last: it ends before the rest does
};

// A lease counts from before the request that began or prolonged it, so that it never ends later
// here than in etcd.
Status Membership::Impl::join() {
  const Time asked = clock.now();
  PRECIS_ASSIGN(lease, etcd.grant(settings.lease));
  const Status written = write_self();
  if (!written.ok()) {
    static_cast<void>(etcd.revoke(std::exchange(lease, 0)));
    return written;
  }
  const std::lock_guard lock(mutex);
  lease_end = asked + settings.lease;
  joined = true;
  return {};
}

Status Membership::Impl::write_self() {
  const Etcd::Row row{node_key(settings.cluster, settings.node), to_json(self), 0};
  const Status written = etcd.write(row, lease);
  if (written.code() != StatusCode::kConflict) return written;
  PRECIS_ASSIGN(const Etcd::Rows there, etcd.read(row.key));
  const bool is_ours = std::ranges::any_of(there.rows, [&](const Etcd::Row& other) {
    return other.key == row.key && other.value == row.value;
  });
  if (is_ours) return {};  // a member wrote it and did not answer in time
  return Status::conflict("another node of the cluster has the name '" + settings.node +
                          "'. If it is this one before its restart, the name is free " +
                          std::to_string(settings.lease.count()) +
                          " s after its end; otherwise set cluster_node to another name");
}

Status Membership::Impl::keep_alive() {
  const Time asked = clock.now();
  const Status kept = etcd.keep_alive(lease);
  if (kept.code() == StatusCode::kNotFound) drop_lease();
  PRECIS_TRY(kept);
  const std::lock_guard lock(mutex);
  lease_end = asked + settings.lease;
  return {};
}

void Membership::Impl::drop_lease() {
  lease = 0;
  const std::lock_guard lock(mutex);
  lease_end = clock.now();
}

Status Membership::Impl::learn() {
  PRECIS_ASSIGN(const Etcd::Rows rows, etcd.read(rows_prefix(settings.cluster)));
  View next = read_view(settings.cluster, rows);
  const msg::ClusterNode* const me = next.find(settings.node);
  const auto at = me == nullptr ? 0 : static_cast<std::size_t>(me - next.nodes.data());
  if (me == nullptr || next.instances[at] != self.instance) {
    drop_lease();
    return Status::unavailable("the node's row in etcd is gone, so it joins again");
  }
  note_nodes(next);
  const std::lock_guard lock(mutex);
  view = std::move(next);
  return {};
}

// Any node may write a better table of owners, and etcd takes one of several. So that thousands do
// not try, the first node by name writes it at once, and the others if it has not for a while.
void Membership::Impl::place() {
  const auto better = better_owners(settings.cluster, view);
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

// A node that reaches etcd renews its lease first, whatever else fails.
Status Membership::Impl::step() {
  PRECIS_TRY(lease == 0 ? join() : keep_alive());
  PRECIS_TRY(learn());
  place();
  note(view.problem);
  PRECIS_TRY(etcd.await_change(rows_prefix(settings.cluster), view.revision, beat_of(settings)));
  pause(kCalm);
  return {};
}

void Membership::Impl::run() {
  while (!is_stopping()) {
    const Status status = step();
    if (status.ok() || is_stopping()) continue;
    note(status);
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

void Membership::Impl::note_nodes(const View& next) {
  const auto lives = [](const View& in, const std::string& name) {
    const msg::ClusterNode* const node = in.find(name);
    return node != nullptr && node->live;
  };
  for (const msg::ClusterNode& node : next.nodes) {
    if (node.live && !lives(view, node.name)) {
      log.info("node came", {{"node", node.name}, {"address", node.address}});
    }
  }
  for (const msg::ClusterNode& node : view.nodes) {
    if (node.live && !lives(next, node.name)) log.warn("node is gone", {{"node", node.name}});
  }
  const auto shards = [this](const View& in) {
    const msg::ClusterNode* const me = in.find(settings.node);
    return me == nullptr ? 0 : me->shards;
  };
  if (shards(next) != shards(view)) log.info("owns shards", {{"count", shards(next)}});
}

msg::ClusterState Membership::Impl::state() const {
  const std::lock_guard lock(mutex);
  msg::ClusterState state;
  state.name = settings.cluster;
  state.node = settings.node;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(lease_end - clock.now());
  if (joined && left.count() > 0) state.lease_left_ms = static_cast<std::uint32_t>(left.count());
  state.state = !joined ? "joining" : state.lease_left_ms > 0 ? "member" : "cut_off";
  state.error = problem.message();
  state.lease_ms = static_cast<std::uint32_t>(settings.lease.count() * 1000);
  state.revision = view.owners_revision;
  state.nodes = view.nodes;
  state.owners = view.owners;
  return state;
}

Membership::Membership(const Settings& settings, Runtime& runtime, Log& log)
    : impl_(std::make_unique<Impl>(settings, runtime, log)) {}
Membership::~Membership() = default;

msg::ClusterState Membership::state() const { return impl_->state(); }

Result<msg::ClusterState> Membership::drain(const std::string& node, bool on) {
  msg::ClusterState before = state();
  if (before.nodes.empty()) {
    return Status::unavailable("this node does not know the others yet" +
                               (before.error.empty() ? "" : ": " + before.error));
  }
  const auto found = std::ranges::find(before.nodes, node, &msg::ClusterNode::name);
  const bool known = found != before.nodes.end();
  if (!is_name(node) || (on && !known)) {
    return Status::not_found("the cluster '" + before.name + "' has no node '" + node +
                             "'; precisctl cluster status lists them");
  }
  const bool others_remain = std::ranges::any_of(before.nodes, [&](const msg::ClusterNode& other) {
    return other.name != node && other.live && !other.draining;
  });
  if (on && !others_remain) {
    return Status::conflict("no other node could own the shards of '" + node +
                            "': start another one, or end the drain of one, first");
  }
  const std::string key = drain_key(impl_->settings.cluster, node);
  const std::lock_guard lock(impl_->drains_mutex);
  if (on) {
    const Status written = impl_->drains.write({key, "", 0});
    if (!written.ok() && written.code() != StatusCode::kConflict) return written;  // it is there
  } else {
    PRECIS_TRY(impl_->drains.remove(key));
  }
  if (known) found->draining = on;
  return before;
}

}  // namespace precis::cluster
