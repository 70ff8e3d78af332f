#include "cachesvc/admin/openapi.h"

#include <algorithm>

#include "cachesvc/admin/request_fields.h"
#include "cachesvc/admin/routes.h"

namespace precis::admin {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

Json content(Json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

// Parameters that the path does not name are in the query of GET and DELETE, and in the body of the
// other methods.
Json operation(const Route& route) {
  Json parameters = Json::array(), properties = Json::object();
  for (Parameter& each : parameters_of(route.request)) {
    if (std::ranges::find(route.fixed, each.name) != route.fixed.end()) continue;
    const bool in_path = route.pattern.find("{" + each.name + "}") != std::string_view::npos;
    if (in_path || route.method == Method::kGet || route.method == Method::kDelete) {
      parameters.push_back({{"name", each.name},
                            {"in", in_path ? "path" : "query"},
                            {"required", in_path},
                            {"schema", std::move(each.schema)}});
    } else {
      properties[each.name] = std::move(each.schema);
    }
  }
  parameters.push_back({{"name", "tenant"},
                        {"in", "query"},
                        {"required", false},
                        {"description", "The tenant on whose behalf the request is made"},
                        {"schema", {{"type", "string"}, {"default", "default"}}}});
  Json operation{{"summary", route.summary}, {"parameters", std::move(parameters)}};
  if (!properties.empty()) {
    operation["requestBody"] = {
        {"content", content({{"type", "object"}, {"properties", std::move(properties)}})}};
  }
  operation["responses"] = {
      {"200", {{"description", "Done"}, {"content", content({{"type", "object"}})}}},
      {"default",
       {{"description", "An error"},
        {"content", content({{"$ref", "#/components/schemas/Error"}})}}}};
  return operation;
}

}  // namespace

std::string openapi_json() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    paths[std::string(route.pattern)][lower(method_name(route.method))] = operation(route);
  }
  const Json text{{"type", "string"}};
  const Json error{{"type", "object"},
                   {"required", {"error", "message"}},
                   {"properties", {{"error", text}, {"message", text}}}};
  const Json bearer{{"type", "http"}, {"scheme", "bearer"}};
  Json security = Json::array();
  security.push_back({{"token", Json::array()}});
  security.push_back(Json::object());
  return message_json::json_text(
      {{"openapi", "3.1.0"},
       {"info", {{"title", "Precis"}, {"version", PRECIS_VERSION}}},
       {"security", std::move(security)},
       {"paths", std::move(paths)},
       {"components",
        {{"securitySchemes", {{"token", bearer}}}, {"schemas", {{"Error", error}}}}}});
}

}  // namespace precis::admin
