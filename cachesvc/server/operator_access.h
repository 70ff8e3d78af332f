// The service's side of the admin port (cachesvc/admin): operators as clients, and the metrics.
// Loop thread only, except where a comment says otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/server/greeter.h"
#include "cachesvc/server/handler_parts.h"
#include "cachesvc/server/peers.h"
#include "cachesvc/server/reload.h"
#include "cachesvc/server/service_report.h"
#include "cachesvc/server/tenants.h"

namespace precis {

class OperatorAccess {
 public:
  // All outlive it.
  struct Parts {
    Tenants& tenants;
    Peers& peers;
    const HandlerParts& handlers;
    Greeter& greeter;
    const ServiceReport& report;
    Reloader& reloader;
    const bool& stopping;
  };
  explicit OperatorAccess(const Parts& parts) : parts_(parts) {}

  // Whether a client may act for `tenant`, by default "default". kNotFound, naming the tenants, if
  // that tenant does not exist; kRejected if there are too many connections; kUnavailable while the
  // service stops.
  Status may_connect(const std::string& tenant) const;
  // kUnsupported for a removal that must ask all nodes of a cluster first: this port reaches one
  // node.
  Status may_ask(const msg::RequestBody& request) const;
  // Adds a client that the caller has authenticated and that may connect.
  void connect(const std::string& tenant, std::unique_ptr<Connection> connection);
  // Counts, logs and audits a refused operator.
  void note_refused(const std::string& from, const Status& why);
  // Counts a stream of events while the returned object lives. Null if there are too many. Called
  // on one thread.
  std::unique_ptr<GaugeHold> count_stream() const;
  // A number that changes when a stream may have something to send. Any thread.
  std::uint64_t activity() const { return parts_.handlers.events.activity(); }
  // Calls `added` for every event (EventLog::on_added). Call it before the service runs.
  void on_event(EventLog::Added added) const { parts_.handlers.events.on_added(std::move(added)); }
  Tracer& tracer() const { return parts_.handlers.tracer; }
  Log& log() const { return parts_.handlers.log; }
  // Calls `use` with the port's TLS settings that a reload has read. Call it before the service
  // runs.
  void on_tls(Reloader::UseTls use) const { parts_.reloader.on_admin_tls(std::move(use)); }
  // The number of times that end_streams() ended the tenant's streams. A stream ends when it
  // differs from the number at its beginning.
  std::uint64_t streams_since(const std::string& tenant) const;
  void end_streams(const std::string& tenant);

  // OK if the service serves gets and puts. kUnavailable with the reason if not.
  Status ready() const;

  // The metrics of the whole process.
  struct Monitored {
    std::vector<msg::Stat> rows;
    std::vector<Metrics::Family<std::int64_t>> labeled;
    std::vector<Metrics::Family<Histogram>> histograms;
    ServiceReport::Waits waits;
    std::vector<std::string> tenants;
  };
  Monitored monitored() const;

  // The metrics of a tenant's stored data. The models after the first kModelsMax are added up in
  // one row without a name, so that a tenant with many models does not make the answer long.
  struct Stored {
    std::string tenant;
    std::vector<msg::Stat> rows;
    std::vector<msg::ModelRow> models;
  };
  static constexpr std::size_t kModelsMax = 64;
  Stored stored(const std::string& tenant) const;  // any thread

 private:
  const Parts parts_;
  std::map<std::string, std::uint64_t> ended_;  // how often, by tenant
};

}  // namespace precis
