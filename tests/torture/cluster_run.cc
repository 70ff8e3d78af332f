#include "tests/torture/cluster_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/torture/cluster_faults.h"

namespace precis::torture {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::uint32_t kWorkers = 4, kPaths = 8, kTokens = 192;
constexpr std::uint32_t kTurnTokens = 64, kTalkTokensMax = 64 * kTurnTokens;

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
  // The state as far as the client knows, because a change that failed may have been made.
  enum class State : std::uint8_t { kUnknown, kStored, kRemoved } state = State::kRemoved;
  std::optional<SegmentId> id;
};

// A conversation whose turns are the worker's paths.
struct Talk {
  std::string name;
  std::uint32_t turns = 0;            // acknowledged
  std::vector<TokenId> tokens, next;  // of all turns so far, and with one that is being made
};

// The longest time without a success since a fault began. Thread-safe.
class Pauses {
 public:
  void begin_fault() {
    const std::lock_guard lock(mutex_);
    last_ = Steady::now();
    longest_ = {};
  }
  void succeed() {
    const std::lock_guard lock(mutex_);
    longest_ = longest();
    last_ = Steady::now();
  }
  double longest_s() {
    const std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(longest()).count();
  }

 private:
  Steady::duration longest() const { return std::max(longest_, Steady::now() - last_); }

  std::mutex mutex_;
  Steady::time_point last_ = Steady::now();  // a success, or the beginning of the fault
  Steady::duration longest_{};
};

// One client with paths of its own. Used by its thread alone, except `pauses`.
struct Worker {
  std::mt19937 random;
  std::shared_ptr<Client> client;
  Model model;
  std::vector<Path> paths;
  Talk talk;
  Pauses pauses;
};

class Run {
 public:
  explicit Run(const ClusterOptions& options)
      : options_(options),
        is_shared_(options.storage != Storage::kNothing),
        random_(options.seed),
        faults_(options.storage, options.kills > 0, random_(), options.tell) {}

  Status all() {
    PRECIS_TRY(faults_.settle());
    for (std::uint32_t n = 0; n < kWorkers; ++n) PRECIS_TRY(add_worker());
    std::vector<std::thread> threads;
    for (Worker& worker : workers_) threads.emplace_back([this, &worker] { work(worker); });
    const Status disturbed = disturb();
    over_ = true;
    options_.tell("wait for the clients");
    for (std::thread& thread : threads) thread.join();
    PRECIS_TRY(failure_);
    PRECIS_TRY(disturbed);
    return check_all();
  }

  ClusterCounts counts() const {
    ClusterCounts counts;
    const auto of = [this](Fault fault) { return faults_.count(fault); };
    const auto from = [this](Storage storage) {
      return storage == options_.storage ? faults_.partitions(Link::kStorage) : 0;
    };
    counts.faults = {{"kills", of(Fault::kKill)},
                     {"restarts", of(Fault::kRestart)},
                     {"nodes_that_stood_still", of(Fault::kStand)},
                     {"drains", of(Fault::kDrain)},
                     {"kills_of_etcd_leaders", of(Fault::kEtcdKill)},
                     {"kills_of_osds", of(Fault::kOsdKill)},
                     {"kills_of_s3", of(Fault::kS3Kill)},
                     {"stops_of_s3", of(Fault::kS3Stand)},
                     {"partitions", of(Fault::kPartition)},
                     {"partitions_from_clients", faults_.partitions(Link::kClients)},
                     {"partitions_from_etcd", faults_.partitions(Link::kEtcd)},
                     {"partitions_from_ceph", from(Storage::kCeph)},
                     {"partitions_from_s3", from(Storage::kS3)},
                     {"slow_links", of(Fault::kSlowLink)},
                     {"clock_steps", of(Fault::kClockStep)}};
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
    ConnectOptions red;
    red.tenant = "red";
    PRECIS_ASSIGN(worker.client, Client::connect(faults_.addresses(), red));
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
        worker.pauses.succeed();
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
    if (is_shared_ && what == 2) return remove(worker, path);
    if (is_shared_ && what == 3) return advance(worker);
    if (is_shared_ && what == 4) return check_talk(worker);
    return read(worker, path);
  }

  Durability durability() const { return is_shared_ ? Durability::kShared : Durability::kWal; }

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
    // While a shard moves, it can be that no node knows the segment.
    return gone.code() == StatusCode::kNotFound ? Status() : gone.with_context("remove");
  }

  // A path that is not stored, or whose shard has moved between the lookup and the get, is a miss.
  Status read(Worker& worker, const Path& path) {
    const auto copy = testing::read_all(*worker.client, worker.model, path.tokens);
    if (copy.status().code() == StatusCode::kNotFound) return check_miss(worker, path);
    PRECIS_TRY(copy.status().with_context("read"));
    ++reads_;
    if (is_shared_ && path.state == Path::State::kRemoved) {
      return Status::corruption("what was removed is there again");
    }
    if (testing::rows_are_of(*copy, {&path.kv})) return {};
    return Status::corruption("rows that were read are not those that were put");
  }

  Status check_miss(Worker& worker, const Path& path) {
    if (path.state != Path::State::kStored) return {};
    if (!is_shared_) {
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

  // Makes faults until the time is over and each kind of fault has been made, or until all kills
  // have been made.
  Status disturb() {
    const auto began = Steady::now();
    while (!over_) {
      const std::chrono::duration<double, std::ratio<60>> minutes = Steady::now() - began;
      const std::uint64_t kills = faults_.count(Fault::kKill);
      const double done = options_.kills > 0 ? static_cast<double>(kills) / options_.kills
                                             : minutes.count() / options_.minutes;
      if (done >= 1 && (options_.kills > 0 || faults_.had_all())) break;
      options_.progress(std::min(done, 1.0), std::to_string(kills) + " kills");
      for (Worker& worker : workers_) worker.pauses.begin_fault();
      PRECIS_ASSIGN(const Fault fault, faults_.next(over_));
      if (fault == Fault::kKill) {
        for (Worker& worker : workers_) pauses_.push_back(worker.pauses.longest_s());
      }
    }
    return {};
  }

  // Without faults, every client puts and reads all of its paths.
  Status check_all() {
    options_.tell("check what is stored");
    PRECIS_TRY(faults_.settle());
    for (Worker& worker : workers_) {
      if (is_shared_) PRECIS_TRY(check_talk(worker).with_context("in the end"));
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
  const bool is_shared_;
  std::mt19937 random_;
  ClusterFaults faults_;
  std::deque<Worker> workers_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  Status failure_;  // guarded by mutex_
  std::atomic<std::uint64_t> acknowledged_{0}, reads_{0}, misses_{0}, errors_{0}, undocumented_{0};
  std::atomic<std::uint64_t> removed_{0}, turns_{0}, talks_{0};
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
