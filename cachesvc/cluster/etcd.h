// A client of etcd's v3 API, through the JSON gateway that every member has
// (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway). One request at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/net/http_post.h"
#include "precis/status.h"

namespace precis::cluster {

// Parses URLs http://HOST:PORT or https, separated by commas. kInvalidArgument states the right
// form.
Result<std::vector<HttpEndpoint>> parse_etcd_urls(const std::string& urls);

// All calls block, on one thread, and ask the next member if one does not answer in time.
// kUnavailable if none answers, or the cluster of etcd has no leader.
class Etcd {
 public:
  struct Row {
    std::string key, value;
    std::uint64_t revision = 0;  // of the last change; 0: there is no such row
  };
  struct Rows {
    std::uint64_t revision = 0;  // of all of etcd, when it answered
    std::vector<Row> rows;       // by key
  };
  using Lease = std::uint64_t;

  // `tls` is for members with https. `time`: how long a member may take to answer.
  explicit Etcd(std::vector<HttpEndpoint> members, std::shared_ptr<const TlsContext> tls = nullptr,
                std::chrono::milliseconds time = std::chrono::seconds(1))
      : members_(std::move(members)), time_(time), post_(std::move(tls)) {}

  // All rows whose key begins with `prefix`.
  Result<Rows> read(const std::string& prefix);
  // The row with this key, if there is one, as it was at a revision of etcd; 0: as it is now.
  Result<Rows> read_one(const std::string& key, std::uint64_t revision = 0);
  // Some of the rows whose key begins with `prefix` as they were at a revision of etcd, by key.
  struct Page {
    std::string after;                // a key; empty: from the first one on
    std::uint64_t revision = 0;       // 0: now
    std::uint64_t changed_since = 0;  // only rows that have changed since this revision
    bool keys_only = false;           // the values are left out
    std::uint32_t limit = 0;
  };
  Result<Rows> read_page(const std::string& prefix, const Page& page);
  // Reads the body of the answer to it. kUnavailable if etcd does not answer so.
  static Result<Rows> parse_rows(std::string_view body);
  // Writes a row whose revision is `row.revision`. kConflict if it has another one. This call may
  // have written that one itself, if a member did so without answering in time. A row with a lease
  // is removed when the lease ends.
  Status write(const Row& row, Lease lease = 0);
  Status remove(const std::string& key);
  Status remove_below(const std::string& prefix);
  // Writes a row whatever it is now.
  Status put(const std::string& key, const std::string& value);
  // Writes rows and removes keys, all or none, if the row `over` has its revision now. kConflict as
  // write(). Returns the new revision. etcd takes at most 128 of them together, and 1.5 MiB.
  struct Change {
    Row over;
    std::vector<Row> puts;
    std::vector<std::string> removed;
  };
  Result<std::uint64_t> write_all(const Change& change);
  // Whether the last call was sent to more than one member. Then the first may have made it.
  bool was_repeated() const { return was_repeated_; }
  // Waits until a row below `prefix` has changed after `revision`, or the time is over. Returns
  // whether one may have changed.
  Result<bool> await_change(const std::string& prefix, std::uint64_t revision,
                            std::chrono::milliseconds time);

  // A lease that ends unless it is kept alive at least so often.
  Result<Lease> grant(std::chrono::seconds time);
  // kNotFound if it has ended.
  Status keep_alive(Lease lease);
  // Ends it now.
  Status revoke(Lease lease);

  // Any thread. From now on calls end soon, also one in progress.
  void hurry() { post_.hurry(); }

 private:
  // `requests`: a JSON array of what a transaction does if `over` has its revision.
  Result<std::uint64_t> write_if(const Row& over, const std::string& requests);
  Result<std::string> call(const std::string& path, const std::string& json,
                           std::chrono::milliseconds time, const HttpPost::Enough& enough = {});

  const std::vector<HttpEndpoint> members_;
  const std::chrono::milliseconds time_;
  std::size_t next_ = 0;  // the member that is asked first
  bool was_repeated_ = false;
  HttpPost post_;
};

}  // namespace precis::cluster
