#include "tests/torture/cluster_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/ceph_cluster.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace precis::torture {
namespace {

using Steady = std::chrono::steady_clock;
using testing::Node;

constexpr std::uint32_t kNodes = 3, kOsds = 3, kWorkers = 4, kPaths = 8, kTokens = 192, kLeaseS = 2;
constexpr std::uint32_t kTurnTokens = 64, kTalkTokensMax = 64 * kTurnTokens;
constexpr auto kSettle = std::chrono::seconds(60);

bool is_expected(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kTimedOut:
    case StatusCode::kMoved:
    case StatusCode::kRejected: return true;
    default: return false;
  }
}

struct Path {
  std::vector<TokenId> tokens;
  testing::Kv kv;
  // As far as the client knows: a change that failed may have been made.
  enum class State : std::uint8_t { kUnknown, kStored, kRemoved } state = State::kRemoved;
  std::optional<SegmentId> id;
};

// A conversation whose turns are the worker's paths.
struct Talk {
  std::string name;
  std::uint32_t turns = 0;            // acknowledged
  std::vector<TokenId> tokens, next;  // of all turns so far, and with one that is being made
};

// One client with paths of its own. Used by its thread alone, but for `longest`.
struct Worker {
  std::mt19937 random;
  std::shared_ptr<Client> client;
  Model model;
  std::vector<Path> paths;
  Talk talk;
  Steady::time_point last = Steady::now();  // success
  std::atomic<Steady::duration> longest{};  // between two successes, since it was last taken
};

class Run {
 public:
  explicit Run(const ClusterOptions& options) : options_(options), random_(options.seed) {
    if (options.shared) ceph_.emplace();
    const std::string settings = ceph_ ? "cluster_ceph_conf = '" + ceph_->conf() +
                                             "'\ncluster_ceph_user = '" + ceph_->user() + "'\n"
                                       : "";
    for (const char* name : {"a", "b", "c"}) nodes_.emplace_back(etcd_, name, settings, kLeaseS);
  }

  Status all() {
    PRECIS_TRY(settle());
    for (std::uint32_t n = 0; n < kWorkers; ++n) PRECIS_TRY(add_worker());
    std::vector<std::thread> threads;
    for (Worker& worker : workers_) threads.emplace_back([this, &worker] { work(worker); });
    const Status disturbed = disturb();
    over_ = true;
    for (std::thread& thread : threads) thread.join();
    PRECIS_TRY(failure_);
    PRECIS_TRY(disturbed);
    return check_all();
  }

  ClusterCounts counts() const {
    ClusterCounts counts = counts_;
    counts.acknowledged = acknowledged_;
    counts.reads = reads_;
    counts.misses = misses_;
    counts.removed = removed_;
    counts.turns = turns_;
    counts.errors = errors_;
    counts.errors_undocumented = undocumented_;
    if (!pauses_.empty()) {
      std::vector<double> pauses = pauses_;
      std::ranges::sort(pauses);
      counts.pause_p99_seconds = pauses[(pauses.size() - 1) * 99 / 100];
    }
    return counts;
  }

 private:
  Status add_worker() {
    Worker& worker = workers_.emplace_back();
    worker.random.seed(random_());
    std::string addresses;
    for (const Node& node : nodes_) addresses += (addresses.empty() ? "" : ",") + node.address();
    ConnectOptions red;
    red.tenant = "red";
    PRECIS_ASSIGN(worker.client, Client::connect("precis://" + addresses + "/", red));
    PRECIS_ASSIGN(worker.model, worker.client->register_model(testing::tiny_model()));
    for (std::uint32_t p = 0; p < kPaths; ++p) {
      worker.paths.push_back(new_path(worker));
    }
    return open_talk(worker);
  }

  Status open_talk(Worker& worker) {
    const std::string name = "talk-" + std::to_string(++talks_);
    PRECIS_TRY(worker.client->open_session(name, 0).status().with_context("open"));
    worker.talk = {name, 0, {}, {}};
    return {};
  }

  static Path new_path(Worker& worker) {
    Path path;
    path.tokens = testing::random_tokens(worker.random, kTokens);
    path.kv = testing::random_kv(worker.random, worker.model.spec, 0, kTokens);
    return path;
  }

  // ---- the clients ------------------------------------------------------------------------------

  void work(Worker& worker) {
    while (!over_) {
      Path& path = worker.paths[worker.random() % kPaths];
      const Status status = act(worker, path);
      if (status.ok()) {
        const auto now = Steady::now();
        worker.longest = std::max(worker.longest.load(), now - worker.last);
        worker.last = now;
      } else if (is_expected(status)) {
        ++errors_;
      } else {
        ++undocumented_;
        fail(status);
      }
    }
  }

  Status act(Worker& worker, Path& path) {
    const std::uint32_t what = worker.random() % 8;
    if (what < 2) return put(worker, path);
    if (options_.shared && what == 2) return remove(worker, path);
    if (options_.shared && what == 3) return advance(worker);
    if (options_.shared && what == 4) return check_talk(worker);
    return read(worker, path);
  }

  Durability durability() const { return options_.shared ? Durability::kShared : Durability::kWal; }

  Status put(Worker& worker, Path& path) {
    if (path.state == Path::State::kRemoved) path.state = Path::State::kUnknown;
    const auto stored = testing::put_all(*worker.client, worker.model, path.tokens, path.kv,
                                         testing::keep_most(), durability());
    PRECIS_TRY(stored.status().with_context("put"));
    path.state = Path::State::kStored;
    path.id = stored->id;
    ++acknowledged_;
    return {};
  }

  Status remove(Worker& worker, Path& path) {
    if (!path.id) return {};
    const Status gone = worker.client->remove_segment(*path.id, false).status();
    if (gone.ok()) {
      path.state = Path::State::kRemoved;
      ++removed_;
      return {};
    }
    // The removal may still be made, also after a later put. So this path is given up.
    path = new_path(worker);
    // While a shard moves, no node may know the segment.
    return gone.code() == StatusCode::kNotFound ? Status() : gone.with_context("remove");
  }

  // A path that is not stored, or whose shard has moved between the lookup and the get, is a miss.
  Status read(Worker& worker, const Path& path) {
    const auto copy = testing::read_all(*worker.client, worker.model, path.tokens);
    if (copy.status().code() == StatusCode::kNotFound) return check_miss(worker, path);
    PRECIS_TRY(copy.status().with_context("read"));
    ++reads_;
    if (options_.shared && path.state == Path::State::kRemoved) {
      return Status::corruption("what was removed is there again");
    }
    if (testing::rows_are_of(*copy, {&path.kv})) return {};
    return Status::corruption("rows that were read are not those that were put");
  }

  Status check_miss(Worker& worker, const Path& path) {
    if (path.state != Path::State::kStored) return {};
    if (!options_.shared) {
      ++misses_;
      return {};
    }
    const auto match = worker.client->lookup(worker.model, path.tokens);
    PRECIS_TRY(match.status().with_context("lookup"));
    if (match->matched_tokens == kTokens) return {};
    ++misses_;
    return Status::corruption("what was acknowledged at shared is lost");
  }

  // One more turn of the session. A turn that failed may have been made, so it is made again.
  Status advance(Worker& worker) {
    Talk& talk = worker.talk;
    if (talk.tokens.size() >= kTalkTokensMax) return open_talk(worker);
    if (talk.next.empty()) {
      const auto more = testing::random_tokens(worker.random, kTurnTokens);
      talk.next = talk.tokens;
      talk.next.insert(talk.next.end(), more.begin(), more.end());
    }
    PutOptions options = testing::keep_most();
    options.session = talk.name;
    const testing::Kv kv = testing::random_kv(worker.random, worker.model.spec, 0,
                                              static_cast<std::uint32_t>(talk.next.size()));
    const auto stored =
        testing::put_all(*worker.client, worker.model, talk.next, kv, options, durability());
    PRECIS_TRY(stored.status().with_context("put of a turn"));
    const auto session = worker.client->advance_session(talk.name, stored->id);
    PRECIS_TRY(session.status().with_context("advance"));
    talk.turns = session->turns;
    talk.tokens = std::exchange(talk.next, {});
    ++turns_;
    return {};
  }

  Status check_talk(Worker& worker) {
    const Talk& talk = worker.talk;
    const auto session = worker.client->session(talk.name);
    if (session.status().code() == StatusCode::kNotFound) {
      return Status::corruption("a session is lost");
    }
    PRECIS_TRY(session.status().with_context("session"));
    if (session->turns >= talk.turns) return {};
    return Status::corruption("a session went back from turn " + std::to_string(talk.turns) +
                              " to " + std::to_string(session->turns));
  }

  void fail(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
    over_ = true;
  }

  // ---- the faults -------------------------------------------------------------------------------

  // Waits until each node knows that all own shards.
  Status settle() {
    const auto until = Steady::now() + kSettle;
    for (Node& node : nodes_) {
      for (;;) {
        const msg::ClusterState state = node.state();
        const auto owns = [](const msg::ClusterNode& other) { return other.shards > 0; };
        if (state.state == "member" && state.nodes.size() == kNodes && state.loading == 0 &&
            std::ranges::all_of(state.nodes, owns)) {
          break;
        }
        if (Steady::now() > until) {
          return Status::timed_out("the node '" + node.name() + "' is not settled: " + state.state +
                                   ", " + state.error);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    return {};
  }

  void pause(double leases) const {
    const auto until =
        Steady::now() + std::chrono::milliseconds(static_cast<int>(1000 * kLeaseS * leases));
    while (!over_ && Steady::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  Status disturb() {
    const auto began = Steady::now();
    const std::chrono::duration<double> all(60 * options_.minutes);
    while (!over_) {
      const std::chrono::duration<double> now = Steady::now() - began;
      if (now >= all) break;
      options_.progress(now / all, std::to_string(counts_.kills) + " kills");
      PRECIS_TRY(disturb_once());
    }
    return {};
  }

  Status disturb_once() {
    for (Worker& worker : workers_) worker.longest = Steady::duration{};
    Node& node = nodes_[random_() % kNodes];
    const std::uint32_t what = random_() % (ceph_ ? 7 : 6);
    if (what < 2) {
      node.kill();
      ++counts_.kills;
      pause(0.5 + static_cast<double>(random_() % 150) / 100);
      node.start();
    } else if (what == 2) {
      if (node.stop() != 0) return Status::internal("a node did not stop in order");
      node.start();
      ++counts_.restarts;
    } else if (what == 3) {
      ::kill(node.pid(), SIGSTOP);
      ++counts_.stands;
      pause(0.2 + static_cast<double>(random_() % 200) / 100);
      ::kill(node.pid(), SIGCONT);
    } else if (what == 4) {
      PRECIS_TRY(node.client().drain_node(node.name(), true).status().with_context("drain"));
      ++counts_.drains;
      pause(0.3);
      PRECIS_TRY(node.client().drain_node(node.name(), false).status().with_context("undrain"));
    } else if (what == 6) {
      const std::size_t osd = random_() % kOsds;
      ceph_->kill_osd(osd);
      ++counts_.osd_kills;
      pause(1);
      ceph_->start_osd(osd);
      ceph_->await_osds(kOsds);
    } else {
      const std::size_t member = etcd_.leader();
      etcd_.kill(member);
      ++counts_.etcd_kills;
      pause(1);
      etcd_.start(member);
    }
    PRECIS_TRY(settle());
    pause(0.3);
    if (what < 2) {
      for (const Worker& worker : workers_) {
        pauses_.push_back(std::chrono::duration<double>(worker.longest.load()).count());
      }
    }
    return {};
  }

  // Without faults, every client puts and reads all of its paths.
  Status check_all() {
    PRECIS_TRY(settle());
    for (Worker& worker : workers_) {
      if (options_.shared) PRECIS_TRY(check_talk(worker).with_context("in the end"));
      for (Path& path : worker.paths) {
        PRECIS_TRY(read(worker, path).with_context("in the end"));
        PRECIS_TRY(put(worker, path).with_context("in the end"));
        const std::uint64_t before = reads_;
        PRECIS_TRY(read(worker, path).with_context("in the end"));
        if (reads_ == before) return Status::corruption("in the end, a path is not stored");
      }
    }
    return {};
  }

  const ClusterOptions options_;
  std::mt19937 random_;
  std::optional<testing::CephCluster> ceph_;
  testing::EtcdMembers etcd_{3};
  std::deque<Node> nodes_;
  std::deque<Worker> workers_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  Status failure_;  // guarded by mutex_
  std::atomic<std::uint64_t> acknowledged_{0}, reads_{0}, misses_{0}, errors_{0}, undocumented_{0};
  std::atomic<std::uint64_t> removed_{0}, turns_{0}, talks_{0};
  ClusterCounts counts_;  // of the faults
  std::vector<double> pauses_;
};

}  // namespace

Status torture_cluster(const ClusterOptions& options, ClusterCounts& counts) {
  Run run(options);
  const Status status = run.all();
  counts = run.counts();
  return status;
}

}  // namespace precis::torture
