#include "cachesvc/server/operator_access.h"

namespace precis {
namespace {

constexpr const char* kClient = "admin port";

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

Status OperatorAccess::may_connect(const std::string& tenant) const {
  if (parts_.stopping) return Status::unavailable("the service is stopping");
  const std::string name = Tenants::name_of(tenant);
  if (!parts_.tenants.has(name)) {
    return Status::not_found("there is no tenant '" + name +
                             "'; name one with ?tenant=: " + listed(parts_.tenants.names()));
  }
  // Checks the quota that the Peer takes.
  Quota::Part part(parts_.handlers.admission.connections,
                   parts_.tenants.named(name).owner(nullptr));
  return Quota::take(part, 1).status();
}

Status OperatorAccess::may_ask(const msg::RequestBody& request) const {
  if (parts_.handlers.membership == nullptr) return {};
  const auto refused = [](const std::string& what, const std::string& command) {
    return Status::unsupported(
        "in a cluster, a " + what +
        " is removed after all nodes were asked what they store of it, and this port asks one: use "
        "precisctl " +
        command);
  };
  const auto* const model = std::get_if<msg::RemoveModel>(&request);
  if (model != nullptr && !model->here_only) return refused("model", "model rm");
  const auto* const tenant = std::get_if<msg::RemoveTenant>(&request);
  if (tenant != nullptr && !tenant->here_only) return refused("tenant", "tenant rm");
  return {};
}

void OperatorAccess::connect(const std::string& tenant, std::unique_ptr<Connection> connection) {
  parts_.peers.add(std::make_shared<Peer>(parts_.handlers, parts_.tenants.named(tenant), kClient,
                                          std::move(connection)));
}

void OperatorAccess::note_refused(const std::string& from, const Status& why) {
  parts_.greeter.note_refused({"", kClient, from}, why);
}

std::unique_ptr<GaugeHold> OperatorAccess::count_stream() const {
  Metrics::Value& streams = parts_.handlers.metrics.event_streams;
  if (streams >= limits::kEventStreamsMax) return nullptr;
  return std::make_unique<GaugeHold>(streams, 1);
}

std::uint64_t OperatorAccess::streams_since(const std::string& tenant) const {
  const auto ended = ended_.find(Tenants::name_of(tenant));
  return ended == ended_.end() ? 0 : ended->second;
}

void OperatorAccess::end_streams(const std::string& tenant) {
  ++ended_[tenant];
  parts_.handlers.events.note_activity();
}

Status OperatorAccess::ready() const {
  if (parts_.stopping) return Status::unavailable("the service is stopping");
  return parts_.report.serves();
}

OperatorAccess::Monitored OperatorAccess::monitored() const {
  const Metrics& metrics = parts_.handlers.metrics;
  return {parts_.report.process_stats().rows, metrics.labeled(), metrics.histograms(),
          parts_.report.waits(), parts_.tenants.names()};
}

OperatorAccess::Stored OperatorAccess::stored(const std::string& tenant) const {
  const Catalog& catalog = parts_.handlers.catalog;
  Stored stored{tenant, {}, {}};
  msg::Stats stats;
  add_totals(stats, catalog.totals(tenant));
  stored.rows = std::move(stats.rows);
  msg::ListModels next;
  msg::ModelRow others;
  do {
    auto page = catalog.models_page(tenant, next);
    if (!page.ok()) break;
    for (msg::ModelRow& row : page->rows) {
      if (stored.models.size() < kModelsMax) {
        stored.models.push_back(std::move(row));
      } else {
        others.segments += row.segments;
      }
    }
    next.after = std::move(page->next);
  } while (!next.after.empty());
  if (others.segments > 0) stored.models.push_back(std::move(others));
  return stored;
}

}  // namespace precis
