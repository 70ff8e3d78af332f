#include "cachesvc/admin/routes.h"

#include <catch2/catch.hpp>
#include <set>

#include "cachesvc/admin/openapi.h"
#include "cachesvc/admin/request_fields.h"

namespace precis::admin {
namespace {

using Catch::Matchers::Contains;

const std::string kModel(64, 'a'), kSegment(32, 'b');

HttpRequest request(Method method, const std::string& target, const std::string& body = "") {
  HttpRequest request;
  request.method = method;
  request.target = parse_target(target).value();
  request.content_type = body.empty() ? "" : "application/json";
  request.body = body;
  return request;
}

Result<msg::RequestBody> read(Method method, const std::string& target,
                              const std::string& body = "") {
  const HttpRequest asked = request(method, target, body);
  PRECIS_ASSIGN(const Route* const route, find_route(method, asked.target));
  return read_request(*route, asked);
}

std::string refusal(Method method, const std::string& target, const std::string& body = "") {
  return read(method, target, body).status().to_string();
}

TEST_CASE("parameters come from the path, the query and the body", "[unit][admin]") {
  CHECK(read(Method::kGet, "/api/v1/status").value() == msg::RequestBody(msg::GetStatus{}));
  const msg::RequestBody listed =
      msg::ListPrefixes{parse_digest(kModel).value(), 7, std::string("\x01\xFF", 2)};
  CHECK(read(Method::kGet, "/api/v1/prefixes?limit=7&after=01ff&tenant=red&model=" + kModel)
            .value() == listed);
  const msg::RequestBody trim = msg::TrimPrefix{parse_segment_id(kSegment).value(),
                                                Budget::entries(128), Durability::kFsync, true};
  CHECK(read(Method::kPost, "/api/v1/prefixes/" + kSegment + "/trim",
             R"({"keep": "128 entries", "durability": "fsync", "dry_run": true})")
            .value() == trim);
  const msg::RequestBody retention =
      msg::SetRetention{parse_segment_id(kSegment).value(), 80, 3600};
  CHECK(read(Method::kPut, "/api/v1/prefixes/" + kSegment + "/retention",
             R"({"priority": 80, "ttl_seconds": 3600})")
            .value() == retention);
  CHECK(read(Method::kPut, "/api/v1/sessions/a%20b%2Fc/pin").value() ==
        msg::RequestBody(msg::PinSession{"a b/c", true}));
  CHECK(read(Method::kDelete, "/api/v1/sessions/x/pin").value() ==
        msg::RequestBody(msg::PinSession{"x", false}));
  msg::ChangeTenant smaller;
  smaller.name = "red";
  smaller.max_disk_bytes = 4096;
  smaller.below_use = true;
  CHECK(read(Method::kPut, "/api/v1/tenants/red", R"({"max_disk_bytes": 4096, "below_use": true})")
            .value() == msg::RequestBody(smaller));
}

TEST_CASE("a budget is set as a number, a text or an object, and unset by null", "[unit][admin]") {
  const auto keep = [](const std::string& value) {
    const auto body = read(Method::kPut, "/api/v1/budgets", R"({"keep": )" + value + "}").value();
    return std::get<msg::SetBudget>(body).keep;
  };
  CHECK(keep("0.25") == Budget::ratio(0.25).value());
  CHECK(keep("\"25%\"") == Budget::ratio(0.25).value());
  CHECK(keep(R"({"kind": "ratio", "value": 0.25})") == Budget::ratio(0.25).value());
  CHECK(keep(R"({"kind": "bytes", "value": 4096})") == Budget::bytes(4096));
  CHECK(keep(R"({"kind": "loss", "value": 0.05})") == Budget::loss(0.05).value());
  CHECK(keep("null") == Budget::all());
  const auto set = std::get<msg::SetBudget>(
      read(Method::kPut, "/api/v1/budgets", R"({"recipe": null, "model": ")" + kModel + "\"}")
          .value());
  CHECK(set.recipe == "");
  CHECK(!set.keep);
  CHECK(set.scope.model == parse_digest(kModel).value());
  const auto of_session =
      read(Method::kPut, "/api/v1/budgets", R"({"keep": 0.5, "session": "chat"})").value();
  CHECK(std::get<msg::SetBudget>(of_session).scope == msg::BudgetScope{{}, "chat"});
  const auto shown = read(Method::kGet, "/api/v1/budgets?session=chat").value();
  CHECK(std::get<msg::ShowBudget>(shown).scope.session == "chat");
}

TEST_CASE("what is written for replies is read back: a budget of every kind", "[unit][admin]") {
  for (const Budget& budget :
       {Budget::all(), Budget::ratio(0.5).value(), Budget::entries(3), Budget::bytes(5),
        Budget::byte_share(0.1).value(), Budget::loss(0.05).value()}) {
    msg::RequestBody body = msg::SetBudget{};
    REQUIRE(set_parameters(body, {{"keep", message_json::to_json(std::optional(budget))}}).ok());
    CHECK(std::get<msg::SetBudget>(body).keep == budget);
  }
}

TEST_CASE("a wrong parameter is refused by its name", "[unit][admin]") {
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?limit=x"), Contains("limit: must be"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?limit=4294967296"), Contains("limit: must"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?limit="), Contains("limit: must be"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?after=0"), Contains("after: must be"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?model=zz"), Contains("model: "));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/prefixes?colour=red"),
             Contains("no parameter 'colour'; choose among model, limit, after"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/status?a=b"), Contains("no parameter 'a'"));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/sessions/x?name=y"), Contains("'name' is given twice"));
  CHECK_THAT(refusal(Method::kDelete, "/api/v1/prefixes/" + kSegment + "?recursive=yes"),
             Contains("recursive: must be true or false"));
  for (const char* keep : {"2", "\"lots\"", "{}", "[]", "true", R"({"kind": "ratio"})",
                           R"({"kind": ["ratio"], "value": 1})"}) {
    CAPTURE(keep);
    CHECK(read(Method::kPut, "/api/v1/budgets", std::string(R"({"keep": )") + keep + "}")
              .status()
              .code() == StatusCode::kInvalidArgument);
  }
  for (const char* body : {"[]", "{", "1", "\"x\"", "{\"a\": 1}"}) {
    CAPTURE(body);
    CHECK(read(Method::kPut, "/api/v1/budgets", body).status().code() ==
          StatusCode::kInvalidArgument);
  }
  HttpRequest form = request(Method::kPut, "/api/v1/budgets", "{}");
  form.content_type = "text/plain";  // another site's page may send it without a preflight
  CHECK_THAT(read_request(*find_route(Method::kPut, form.target).value(), form).status().message(),
             Contains("application/json"));
}

TEST_CASE("another path is not found, another method names the path's methods", "[unit][admin]") {
  CHECK(find_route(Method::kGet, parse_target("/api/v1/none").value()).status().code() ==
        StatusCode::kNotFound);
  CHECK(find_route(Method::kGet, parse_target("/").value()).status().code() ==
        StatusCode::kNotFound);
  CHECK_THAT(find_route(Method::kPost, parse_target("/api/v1/budgets").value()).status().message(),
             Contains("GET, PUT"));
}

TEST_CASE("a malformed target is refused", "[unit][admin]") {
  for (const char* target :
       {"", "*", "api", "/%", "/%4", "/%zz", "/%00", "/a?b=%0a", "/a?b=1&b=2", "http://x/"}) {
    CAPTURE(target);
    CHECK(!parse_target(target).ok());
  }
  const Target target = parse_target("//a//%41+b/?x=%26+%3D&y").value();
  CHECK(target.parts == std::vector<std::string>{"a", "A+b"});
  CHECK(target.query == std::map<std::string, std::string>{{"x", "& ="}, {"y", ""}});
}

TEST_CASE("a page's cursor is the parameter of the next page", "[unit][admin]") {
  msg::Sessions page;
  page.next = std::string("\0\x7F\xAB", 3);
  const auto json = reply_json(page, {});
  const auto next = read(Method::kGet, "/api/v1/sessions?after=" + json["next"].get<std::string>());
  CHECK(std::get<msg::ListSessions>(next.value()).after == page.next);
  CHECK(reply_json(msg::Sessions{}, {})["next"].is_null());
}

TEST_CASE("the position of an event is a parameter as it is, in letters", "[unit][admin]") {
  const auto asked = read(Method::kGet, "/api/v1/events?after=0000000000000007:3&limit=2").value();
  CHECK(asked == msg::RequestBody(msg::ListEvents{"0000000000000007:3", 2}));
  CHECK_THAT(refusal(Method::kGet, "/api/v1/events?position=x"), Contains("no parameter"));
  CHECK_THAT(openapi_json(), Contains("newest"));
}

TEST_CASE("every route is described once, with its path's parameters", "[unit][admin]") {
  const auto api = message_json::Json::parse(openapi_json());
  std::size_t described = 0;
  for (const auto& [path, methods] : api["paths"].items()) described += methods.size();
  CHECK(described == routes().size());
  const auto& pin = api["paths"]["/api/v1/sessions/{name}/pin"];
  CHECK(pin.dump().find("pinned") == std::string::npos);  // the method says it
  CHECK(pin["put"]["parameters"].size() == 2);            // the name, and the tenant
  for (const Route& route : routes()) {
    CAPTURE(route.pattern);
    std::set<std::string> known;
    for (const Parameter& each : parameters_of(route.request)) known.insert(each.name);
    std::string_view rest = route.pattern;
    for (auto open = rest.find('{'); open != rest.npos; open = rest.find('{')) {
      rest.remove_prefix(open + 1);
      CHECK(known.count(std::string(rest.substr(0, rest.find('}')))) == 1);
    }
  }
}

}  // namespace
}  // namespace precis::admin
