// Rows that all nodes of a cluster share (docs/design/cluster.md). etcd has them, and each node has
// a copy. The cluster makes one change at a time, and each starts from the result of the one
// before.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/cluster/agreed_store.h"
#include "cachesvc/cluster/etcd.h"

namespace precis::cluster {

// A node's copy. Its functions block.
class AgreedCopy {
 public:
  virtual ~AgreedCopy() = default;
  virtual Result<std::vector<AgreedRow>> rows() = 0;
  // Replaces these rows, or on an error none of them. `left_out` receives the rows that it does not
  // understand and therefore does not change.
  virtual Status take(std::vector<AgreedRow> rows, LeftOut& left_out) = 0;
  // The changes that this node makes by itself. Most of the time there are none.
  virtual std::vector<AgreedRow> own_changes() = 0;
  // The key of the row that tells this cluster from others.
  virtual std::string identity() const = 0;
};

class AgreedRows {
 public:
  struct Settings {
    std::vector<HttpEndpoint> etcd;
    std::shared_ptr<const TlsContext> tls;
    std::string cluster;
    std::chrono::milliseconds time;  // how long a member of etcd may take to answer
  };
  // `copy` outlives it.
  AgreedRows(const Settings& settings, Runtime& runtime, Log& log, AgreedCopy& copy);
  ~AgreedRows();

  // [blocking] Compares the whole copy with etcd. A node calls it whenever it joins, because etcd
  // may have been restored from a backup. kVersionMismatch, and nothing is changed, if the copy is
  // of another cluster.
  Status join();
  // Any thread. Notes the revision of the last change, and the row that it has written.
  void note(std::uint64_t revision, const std::string& row);
  // Any thread. Whether the copy has ever been the same as the rows in etcd.
  bool known() const { return is_known_; }
  // Any thread. Why the copy may be old or incomplete.
  Status problem() const;

  // [blocking] Any thread. Makes all nodes take the rows that `plan` returned last. `plan` reads
  // the copy, which has all changes before; it is called again if another node was faster. An error
  // of it changes nothing. The rows are in etcd and in this node's copy when it returns OK.
  // kRejected if etcd does not answer now, and nothing is changed; kUnavailable if it does not say
  // whether it has made the change.
  using Plan = std::function<Result<std::vector<AgreedRow>>()>;
  Status change(const Plan& plan);
  // Any thread. Numbers a request, for catch_up().
  std::uint64_t ask() { return ++asked_; }
  // [blocking] Any thread. Takes all changes that were made before the request was numbered.
  // kRejected if etcd does not answer now.
  Status catch_up(std::uint64_t asked);
  Status catch_up() { return catch_up(ask()); }

  // Any thread. From now on calls soon end, also one in progress.
  void stop();

 private:
  using Rows = std::vector<AgreedRow>;
  using Version = AgreedStore::Version;

  void follow_noted();
  // Callers hold mutex_ for the functions below. `taken`: what has changed.
  Status follow(Rows* taken = nullptr);
  bool was_restored(const Version& now, const AgreedStore::Index& index) const;
  Status compare_all(const Version& now, AgreedStore::Index& index, Rows& changed, Rows& missing);
  Status may_complete(const Version& now);
  Status complete(Rows missing);
  Status take(Rows rows);
  Status change_rows(const Plan& plan);
  bool has_made(const Rows& rows, const Rows& taken) const;

  Log& log_;
  const Clock& clock_;
  AgreedCopy& copy_;

  std::timed_mutex mutex_;
  // Guarded by mutex_.
  Etcd etcd_;
  AgreedStore store_;
  AgreedStore::Index index_;  // of etcd, when the copy was the same
  Version applied_;           // the last change that the copy has
  bool compares_all_ = true;  // the next time
  LeftOut left_out_;
  std::uint64_t followed_ = 0;  // the last request that needs no more
  // Since when another node's change is the last one, and is not complete.
  std::optional<std::pair<std::string, Clock::Time>> incomplete_;

  std::atomic<std::uint64_t> asked_ = 0;
  std::atomic<bool> is_known_ = false, is_stopping_ = false;
  mutable std::mutex noted_mutex_;
  // Guarded by noted_mutex_.
  std::uint64_t noted_revision_ = 0;
  std::string noted_row_;
  bool is_posted_ = false;
  Status problem_;

  std::unique_ptr<Executor> thread_;  // the last: it ends before the rest does
};

}  // namespace precis::cluster
