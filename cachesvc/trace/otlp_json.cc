#include "cachesvc/trace/otlp_json.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "cachesvc/server/version.h"
#include "schema/json/message_json.h"

namespace precis::trace {
namespace {

using message_json::Json;

constexpr int kInternal = 1, kServer = 2;  // SpanKind
constexpr int kError = 2;                  // StatusCode

Json attribute(const std::string& key, Json value) {
  return {{"key", key}, {"value", std::move(value)}};
}
Json text_attribute(const std::string& key, std::string_view text) {
  return attribute(key, {{"stringValue", text}});
}

Json attributes_of(const RequestSpans& request) {
  Json all = Json::array();
  const auto& [tenant, model, tier, transport] = request.labels;
  for (const auto& [name, label] : {std::pair("tenant", &tenant), std::pair("model", &model),
                                    std::pair("tier", &tier), std::pair("transport", &transport)}) {
    if (!label->empty()) all.push_back(text_attribute(std::string("precis.") + name, *label));
  }
  for (const auto& [name, amount] : request.amounts) {
    all.push_back(attribute(std::string("precis.") + name, {{"intValue", std::to_string(amount)}}));
  }
  all.push_back(text_attribute("precis.status", status_code_name(request.status)));
  return all;
}

// `parent`: the id of a span, or 0.
Json span_json(const TraceContext& trace, const Span& span, std::uint64_t parent, int kind) {
  Json json = {{"traceId", hex_id(trace.trace_high) + hex_id(trace.trace_low)},
               {"spanId", hex_id(span.id)}};
  if (parent != 0) json["parentSpanId"] = hex_id(parent);
  json["name"] = span.name;
  json["kind"] = kind;
  json["startTimeUnixNano"] = std::to_string(span.begin_unix_ns);
  json["endTimeUnixNano"] = std::to_string(span.end_unix_ns);
  return json;
}

}  // namespace

std::string otlp_json(std::span<const RequestSpans> requests) {
  Json spans = Json::array();
  for (const RequestSpans& request : requests) {
    Json& whole = spans.emplace_back(
        span_json(request.context, request.request, request.context.span, kServer));
    whole["attributes"] = attributes_of(request);
    if (request.status != StatusCode::kOk) {
      whole["status"] = {{"code", kError}, {"message", status_code_name(request.status)}};
    }
    for (const Span& stage : request.stages) {
      spans.push_back(span_json(request.context, stage, request.request.id, kInternal));
    }
  }
  const Json scope = {{"name", "precis"}, {"version", kVersion}};
  const Json resource = {
      {"attributes", Json::array({text_attribute("service.name", "precisd"),
                                  text_attribute("service.version", kVersion)})}};
  const Json scoped = {{"scope", scope}, {"spans", std::move(spans)}};
  return message_json::json_line(
      {{"resourceSpans",
        Json::array({{{"resource", resource}, {"scopeSpans", Json::array({scoped})}}})}});
}

}  // namespace precis::trace
