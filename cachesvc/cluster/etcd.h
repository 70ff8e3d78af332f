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
  // Reads the body of the answer to it. kUnavailable if etcd does not answer so.
  static Result<Rows> parse_rows(std::string_view body);
  // Writes a row that has `row.revision` now. kConflict if it has another one, which may be what
  // this call has written, if a member wrote it and did not answer in time. A row with a lease is
  // removed when the lease ends.
  Status write(const Row& row, Lease lease = 0);
  Status remove(const std::string& key);
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

  // Any thread. From now on calls are short, also one in progress.
  void hurry() { post_.hurry(); }

 private:
  Result<std::string> call(const std::string& path, const std::string& json,
                           std::chrono::milliseconds time, const HttpPost::Enough& enough = {});

  const std::vector<HttpEndpoint> members_;
  const std::chrono::milliseconds time_;
  std::size_t next_ = 0;  // the member that is asked first
  HttpPost post_;
};

}  // namespace precis::cluster
