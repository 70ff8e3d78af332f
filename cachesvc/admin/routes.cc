#include "cachesvc/admin/routes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cachesvc/admin/request_fields.h"

namespace precis::admin {
namespace {

using enum Method;

// Adds routes one by one: the compiler takes minutes for a list of such variants.
class Table {
 public:
  template <typename Message>
  void add(Method method, std::string_view pattern, std::string_view summary,
           const Message& message, std::vector<std::string_view> fixed = {}) {
    routes_.push_back({method, pattern, summary, message, std::move(fixed)});
  }
  std::vector<Route> take() { return std::move(routes_); }

 private:
  std::vector<Route> routes_;
};

std::vector<Route> make_table() {
  Table t;
  t.add(kGet, "/api/v1/status", "Whether the service is up, and what it stores", msg::GetStatus{});
  t.add(kGet, "/api/v1/stats", "Counters and gauges", msg::GetStats{});
  t.add(kGet, "/api/v1/models", "A page of the registered models", msg::ListModels{});
  t.add(kDelete, "/api/v1/models/{model}", "Remove a model that has no segments",
        msg::RemoveModel{}, {"here_only"});
  t.add(kGet, "/api/v1/models/{model}/profiles/{name}", "A profile with its JSON",
        msg::ShowProfile{});
  t.add(kDelete, "/api/v1/models/{model}/profiles/{name}", "Remove a profile",
        msg::RemoveProfile{});
  t.add(kGet, "/api/v1/prefixes", "A page of the stored segments, newest first",
        msg::ListPrefixes{});
  t.add(kGet, "/api/v1/prefixes/{segment}", "A segment with its plan", msg::ShowPrefix{});
  t.add(kDelete, "/api/v1/prefixes/{segment}", "Remove a segment", msg::RemovePrefix{});
  t.add(kPost, "/api/v1/prefixes/{segment}/trim", "Keep fewer entries of a segment",
        msg::TrimPrefix{});
  t.add(kPut, "/api/v1/prefixes/{segment}/retention", "Set a segment's priority and TTL",
        msg::SetRetention{});
  t.add(kPost, "/api/v1/prefixes/{segment}/check", "Read and check a segment", msg::CheckPrefix{});
  t.add(kGet, "/api/v1/find_prefix", "The segment whose id begins with these digits",
        msg::FindPrefix{});
  t.add(kGet, "/api/v1/sessions", "A page of the sessions, by name", msg::ListSessions{});
  t.add(kGet, "/api/v1/sessions/{name}", "A session", msg::ShowSession{});
  t.add(kPut, "/api/v1/sessions/{name}", "Make a session, or change what is given",
        msg::OpenSession{});
  t.add(kDelete, "/api/v1/sessions/{name}", "Remove a session; its prefix stays",
        msg::RemoveSession{});
  t.add(kPut, "/api/v1/sessions/{name}/pin", "Protect the session's prefix from removal",
        msg::PinSession{.name = {}, .pinned = true}, {"pinned"});
  t.add(kDelete, "/api/v1/sessions/{name}/pin", "Allow the prefix's removal again",
        msg::PinSession{.name = {}, .pinned = false}, {"pinned"});
  t.add(kGet, "/api/v1/budgets", "The defaults of puts, and those in force", msg::ShowBudget{});
  t.add(kPut, "/api/v1/budgets", "Change the defaults of puts", msg::SetBudget{});
  t.add(kGet, "/api/v1/budgets/revisions", "The revisions of the budgets, the newest first",
        msg::ListBudgetRevisions{});
  t.add(kGet, "/api/v1/budgets/diff",
        "What the scopes set differently after two revisions; without `from`, all that they set",
        msg::CompareBudgets{});
  t.add(kPost, "/api/v1/budgets/revisions/{revision}/rollback",
        "Set every scope to what it was after a revision", msg::RollBackBudget{});
  t.add(kGet, "/api/v1/budgets/application",
        "The application of budgets to stored segments that runs, or ran last",
        msg::ShowApplication{});
  t.add(kDelete, "/api/v1/budgets/application", "Cancel the application that runs",
        msg::CancelApplication{});
  t.add(kGet, "/api/v1/events",
        "The events of stored segments; with Accept: text/event-stream, as a stream",
        msg::ListEvents{});
  t.add(kGet, "/api/v1/profiles", "The profiles", msg::ListProfiles{});
  t.add(kPost, "/api/v1/profiles", "Add a profile, or replace it", msg::AddProfile{});
  t.add(kGet, "/api/v1/tenants", "A page of the tenants, by name", msg::ListTenants{});
  t.add(kPost, "/api/v1/tenants", "Add a tenant; the answer has its token", msg::AddTenant{});
  t.add(kGet, "/api/v1/tenants/{name}", "A tenant", msg::ShowTenant{});
  t.add(kPut, "/api/v1/tenants/{name}", "Change what is given", msg::ChangeTenant{});
  t.add(kPost, "/api/v1/tenants/{name}/token", "Make a new token, or drop the old one",
        msg::RotateToken{});
  t.add(kDelete, "/api/v1/tenants/{name}", "Remove a tenant; purge: with what it has stored",
        msg::RemoveTenant{}, {"here_only"});
  t.add(kGet, "/api/v1/backups", "The complete backups, the newest first", msg::ListBackups{});
  t.add(kPost, "/api/v1/backups", "Start a backup of all tenants", msg::StartBackup{});
  t.add(kGet, "/api/v1/backup", "The backup that runs, or ran last", msg::ShowBackup{});
  t.add(kDelete, "/api/v1/backup", "Cancel the backup that runs", msg::CancelBackup{});
  t.add(kGet, "/api/v1/cluster", "The cluster's nodes, and which of them owns each shard",
        msg::ShowCluster{});
  t.add(kPost, "/api/v1/cluster/nodes/{node}/drain",
        "Let a node own no shards; on = false: let it own some again", msg::DrainNode{});
  return t.take();
}

const std::vector<Route>& table() {
  static const std::vector<Route> routes = make_table();
  return routes;
}

std::vector<std::string_view> parts_of(std::string_view pattern) {
  std::vector<std::string_view> parts;
  while (!pattern.empty()) {
    pattern.remove_prefix(1);
    const auto end = pattern.find('/');
    parts.push_back(pattern.substr(0, end));
    pattern.remove_prefix(std::min(end, pattern.size()));
  }
  return parts;
}

// The name of a part such as "{segment}"; empty for any other part.
std::string_view parameter_of(std::string_view part) {
  return part.starts_with('{') ? part.substr(1, part.size() - 2) : std::string_view();
}

bool matches(const Route& route, const Target& target) {
  const auto parts = parts_of(route.pattern);
  return std::ranges::equal(parts, target.parts, [](std::string_view part, const std::string& is) {
    return !parameter_of(part).empty() || part == is;
  });
}

Result<Json> body_of(const HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  if (!request.content_type.starts_with("application/json")) {
    return Status::invalid("the body's Content-Type must be application/json");
  }
  Json body = message_json::parse_json(request.body);
  if (!body.is_object()) return Status::invalid("the body must be a JSON object");
  return body;
}

template <typename Page>
Json page_json(const char* key, const Page& page) {
  Json json{{key, message_json::rows_json(page.rows)}};
  if constexpr (requires { page.next; }) {
    json["next"] = page.next.empty() ? Json() : Json(cursor_hex(page.next));
  }
  return json;
}

struct ToJson {
  const Target& target;
  Json operator()(const msg::Done&) const {  // only removals have no other answer
    return {{"removed", target.parts.back()}};
  }
  Json operator()(const msg::Models& page) const { return page_json("models", page); }
  Json operator()(const msg::Segments& page) const { return page_json("prefixes", page); }
  Json operator()(const msg::Sessions& page) const { return page_json("sessions", page); }
  Json operator()(const msg::Profiles& page) const { return page_json("profiles", page); }
  Json operator()(const msg::Tenants& page) const { return page_json("tenants", page); }
  Json operator()(const msg::Backups& page) const { return page_json("backups", page); }
  Json operator()(const msg::BudgetRevisions& page) const {
    Json json = page_json("revisions", page);
    json["newest"] = page.newest;
    json["oldest"] = page.oldest;
    return json;
  }
  Json operator()(const msg::Events& page) const {
    return {{"events", message_json::rows_json(page.rows)}, {"next", page.next}};
  }
  // No route has these answers.
  Json operator()(const msg::PutBegun&) const { return {}; }
  Json operator()(const msg::Match&) const { return {}; }
  Json operator()(const msg::GetDone&) const { return {}; }
  template <typename Row>
  Json operator()(const Row& row) const {
    return message_json::to_json(row);
  }
};

}  // namespace

std::span<const Route> routes() { return table(); }

Result<const Route*> find_route(Method method, const Target& target) {
  std::string methods;
  for (const Route& route : table()) {
    if (!matches(route, target)) continue;
    if (route.method == method) return &route;
    methods += (methods.empty() ? "" : ", ") + std::string(method_name(route.method));
  }
  if (!methods.empty()) return Status::unsupported("this path has other methods: " + methods);
  return Status::not_found("there is no such path; /api/v1/openapi.json lists them");
}

std::string tenant_of(const Target& target) {
  const auto tenant = target.query.find("tenant");
  return tenant == target.query.end() ? "" : tenant->second;
}

Result<msg::RequestBody> read_request(const Route& route, const HttpRequest& request) {
  PRECIS_ASSIGN(Json values, body_of(request));
  const auto add = [&](const std::string& name, const std::string& value) -> Status {
    if (values.contains(name)) return Status::invalid("'" + name + "' is given twice");
    values[name] = value;
    return {};
  };
  const auto parts = parts_of(route.pattern);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::string name(parameter_of(parts[p]));
    if (!name.empty()) PRECIS_TRY(add(name, request.target.parts[p]));
  }
  for (const auto& [name, value] : request.target.query) {
    if (name != "tenant") PRECIS_TRY(add(name, value));
  }
  for (const std::string_view fixed : route.fixed) {
    if (!values.contains(fixed)) continue;
    return Status::invalid("'" + std::string(fixed) +
                           "' is what the method and the path say; leave it out");
  }
  msg::RequestBody body = route.request;
  PRECIS_TRY(set_parameters(body, values));
  return body;
}

Json reply_json(const msg::ReplyBody& reply, const Target& target) {
  return std::visit(ToJson{target}, reply);
}

}  // namespace precis::admin
