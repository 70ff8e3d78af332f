// The JSON mapping of OTLP: opentelemetry.io/docs/specs/otlp and opentelemetry-proto.
#include "cachesvc/trace/otlp_json.h"

#include <catch2/catch.hpp>

#include "cachesvc/server/version.h"
#include "schema/json/message_json.h"

namespace precis::trace {
namespace {

using message_json::Json;

Json text(const std::string& key, const std::string& value) {
  Json pair;
  pair["key"] = key;
  pair["value"]["stringValue"] = value;
  return pair;
}

RequestSpans get_of(const TraceContext& context) {
  RequestSpans spans;
  spans.context = context;
  spans.request = {"precis.get", 0xb, 1'700'000'000'000'000'001, 1'700'000'000'000'000'009};
  spans.stages = {{"wait", 0xc, 1'700'000'000'000'000'002, 1'700'000'000'000'000'003}};
  spans.labels = {"red", "model \"x\"", "memory", "tcp"};
  spans.amounts = {{"bytes", std::uint64_t{1} << 60}};
  return spans;
}

Json spans_in(const std::vector<RequestSpans>& requests) {
  const Json json = message_json::parse_json(otlp_json(requests));
  REQUIRE(json.contains("resourceSpans"));
  REQUIRE(json["resourceSpans"].size() == 1);
  const Json& resource = json["resourceSpans"][0];
  CHECK(resource["resource"]["attributes"][0] == text("service.name", "precisd"));
  CHECK(resource["resource"]["attributes"][1] == text("service.version", kVersion));
  REQUIRE(resource["scopeSpans"].size() == 1);
  CHECK(resource["scopeSpans"][0]["scope"]["name"] == "precis");
  return resource["scopeSpans"][0]["spans"];
}

}  // namespace

TEST_CASE("a request and its stages are spans in the JSON of OTLP", "[unit][trace]") {
  const Json spans = spans_in({get_of({0xa1, 0xa2, 0xa3, true})});
  REQUIRE(spans.size() == 2);
  const Json& get = spans[0];
  CHECK(get["traceId"] == "00000000000000a100000000000000a2");
  CHECK(get["spanId"] == "000000000000000b");
  CHECK(get["parentSpanId"] == "00000000000000a3");
  CHECK(get["name"] == "precis.get");
  CHECK(get["kind"] == 2);
  CHECK(get["startTimeUnixNano"] == "1700000000000000001");
  CHECK(get["endTimeUnixNano"] == "1700000000000000009");
  CHECK_FALSE(get.contains("status"));
  REQUIRE(get["attributes"].size() == 6);
  CHECK(get["attributes"][0] == text("precis.tenant", "red"));
  CHECK(get["attributes"][1] == text("precis.model", "model \"x\""));
  CHECK(get["attributes"][2] == text("precis.tier", "memory"));
  CHECK(get["attributes"][3] == text("precis.transport", "tcp"));
  CHECK(get["attributes"][4]["key"] == "precis.bytes");
  CHECK(get["attributes"][4]["value"]["intValue"] == "1152921504606846976");
  CHECK(get["attributes"][5] == text("precis.status", "ok"));
  const Json& wait = spans[1];
  CHECK(wait["traceId"] == get["traceId"]);
  CHECK(wait["parentSpanId"] == get["spanId"]);
  CHECK(wait["kind"] == 1);
  CHECK_FALSE(wait.contains("attributes"));
}

TEST_CASE("a span that begins its trace has no parent", "[unit][trace]") {
  CHECK_FALSE(spans_in({get_of({1, 2, 0, true})})[0].contains("parentSpanId"));
}

TEST_CASE("of an error, only the name of its code is sent", "[unit][trace]") {
  RequestSpans failed = get_of({1, 2, 3, true});
  failed.status = StatusCode::kNotFound;
  const Json span = spans_in({failed})[0];
  CHECK(span["status"]["code"] == 2);
  CHECK(span["status"]["message"] == "not_found");
  CHECK(span["attributes"][5] == text("precis.status", "not_found"));
}

}  // namespace precis::trace
