#include "tests/torture/cluster_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/cluster_node.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace precis::torture {
namespace {

using Steady = std::chrono::steady_clock;
using testing::Node;

constexpr std::uint32_t kNodes = 3, kWorkers = 4, kPaths = 8, kTokens = 192, kLeaseS = 2;
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
  bool acknowledged = false;
};

// One client with paths of its own. Used by its thread alone, but for `longest`.
struct Worker {
  std::mt19937 random;
  std::shared_ptr<Client> client;
  Model model;
  std::vector<Path> paths;
  Steady::time_point last = Steady::now();  // success
  std::atomic<Steady::duration> longest{};  // between two successes, since it was last taken
};

class Run {
 public:
  explicit Run(const ClusterOptions& options) : options_(options), random_(options.seed) {
    for (const char* name : {"a", "b", "c"}) nodes_.emplace_back(etcd_, name, "", kLeaseS);
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
      Path path{testing::random_tokens(worker.random, kTokens), {}, false};
      path.kv = testing::random_kv(worker.random, worker.model.spec, 0, kTokens);
      worker.paths.push_back(std::move(path));
    }
    return {};
  }

  // ---- the clients ------------------------------------------------------------------------------

  void work(Worker& worker) {
    while (!over_) {
      Path& path = worker.paths[worker.random() % kPaths];
      const Status status = worker.random() % 3 == 0 ? put(worker, path) : read(worker, path);
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

  Status put(Worker& worker, Path& path) {
    const auto stored =
        testing::put_all(*worker.client, worker.model, path.tokens, path.kv, testing::keep_most());
    PRECIS_TRY(stored.status().with_context("put"));
    path.acknowledged = true;
    ++acknowledged_;
    return {};
  }

  // A path that is not stored, or whose shard has moved between the lookup and the get, is a miss.
  Status read(Worker& worker, const Path& path) {
    const auto copy = testing::read_all(*worker.client, worker.model, path.tokens);
    if (copy.status().code() == StatusCode::kNotFound) {
      if (path.acknowledged) ++misses_;
      return {};
    }
    PRECIS_TRY(copy.status().with_context("read"));
    ++reads_;
    if (testing::rows_are_of(*copy, {&path.kv})) return {};
    return Status::corruption("rows that were read are not those that were put");
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
        if (state.state == "member" && state.nodes.size() == kNodes &&
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
    const std::uint32_t what = random_() % 6;
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
  testing::EtcdMembers etcd_{3};
  std::deque<Node> nodes_;
  std::deque<Worker> workers_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  Status failure_;  // guarded by mutex_
  std::atomic<std::uint64_t> acknowledged_{0}, reads_{0}, misses_{0}, errors_{0}, undocumented_{0};
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
