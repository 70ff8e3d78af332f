#include "cachesvc/cluster/etcd.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "cachesvc/cluster/base64.h"
#include "cachesvc/cluster/json.h"

namespace precis::cluster {
namespace {

// Errors begin with it, because a wrong address in the setting is their likeliest cause.
constexpr char kWhat[] = "etcd (cluster_etcd)";
constexpr std::chrono::milliseconds kLastTime{500};
constexpr std::size_t kAnswerBytesMax = 8u << 20;  // rows of 2,048 nodes take about 1 MiB
constexpr std::size_t kErrorBytesMax = 200;
// The codes of gRPC that are told apart.
constexpr std::int64_t kGrpcNotFound = 5;

// The gateway writes 64-bit numbers as text and leaves out zeros.
std::uint64_t number_of(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (found == object.end() || !found->is_string()) return 0;
  const std::string& text = found->get_ref<const std::string&>();
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() ? number : 0;
}

std::optional<std::string> bytes_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return std::string();
  if (!found->is_string()) return {};
  return from_base64(found->get_ref<const std::string&>());
}

std::string text_of(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

struct GrpcError {
  std::int64_t code = 0;
  std::string message;
};
// The answers to streams have the error in a field of its own.
GrpcError error_of(std::string_view body) {
  Json json = parsed(body);
  const auto inner = json.is_object() ? json.find("error") : json.end();
  if (inner != json.end() && inner->is_object()) json = Json(*inner);
  GrpcError error{0, text_of(json, "message").substr(0, kErrorBytesMax)};
  for (const char* name : {"code", "grpc_code"}) {
    const auto code = json.is_object() ? json.find(name) : json.end();
    if (code != json.end() && code->is_number_integer()) error.code = code->get<std::int64_t>();
  }
  return error;
}

Status not_etcd(const std::string& path) {
  return Status::unavailable("the answer to " + path + " is not one of etcd (cluster_etcd)");
}

// The first key after all that begin with `prefix`.
std::string end_of(std::string prefix) {
  ++prefix.back();  // the last byte of a prefix of ours is '/'
  return prefix;
}

Json range_of(const std::string& prefix) {
  return {{"key", to_base64(prefix)}, {"range_end", to_base64(end_of(prefix))}};
}

}  // namespace

Result<std::vector<HttpEndpoint>> parse_etcd_urls(const std::string& urls) {
  std::vector<HttpEndpoint> members;
  for (std::size_t begin = 0; begin <= urls.size();) {
    const std::size_t end = std::min(urls.find(',', begin), urls.size());
    std::string url = urls.substr(begin, end - begin);
    url.erase(0, url.find_first_not_of(' '));
    auto member = parse_http_endpoint(url);
    if (!member.ok() || (!member->target.empty() && member->target != "/")) {
      return Status::invalid(
          "'" + url +
          "' must be http://HOST:PORT, such as http://127.0.0.1:2379, or https; several "
          "are separated by commas");
    }
    member->target.clear();
    members.push_back(std::move(*member));
    begin = end + 1;
  }
  return members;
}

Result<std::string> Etcd::call(const std::string& path, const std::string& json,
                               std::chrono::milliseconds time, const HttpPost::Enough& enough) {
  Status failed = Status::unavailable("no member of etcd is known");
  for (std::size_t tried = 0; tried < members_.size(); ++tried) {
    HttpEndpoint to = members_[next_];
    to.target = "/v3/" + path;
    was_repeated_ = tried > 0;
    auto answer = post_.post(
        to, json, {.time = time, .last_time = kLastTime, .answer_bytes = kAnswerBytesMax}, enough);
    if (answer.ok() && answer->status == 200) return std::move(answer->body);
    if (answer.ok()) {
      const GrpcError error = error_of(answer->body);
      failed = Status::unavailable(std::string(kWhat) + ": " + to.authority + " answers to " +
                                   path + " with HTTP status " + std::to_string(answer->status) +
                                   ": " + error.message);
      if (error.code == kGrpcNotFound) return Status::not_found(failed.message());
    } else {
      failed = answer.status().with_context(kWhat);
      if (enough && failed.code() == StatusCode::kTimedOut) return failed;  // no change to report
    }
    next_ = (next_ + 1) % members_.size();
  }
  return failed;
}

Result<Etcd::Rows> Etcd::read(const std::string& prefix) {
  PRECIS_ASSIGN(const std::string body, call("kv/range", range_of(prefix).dump(), time_));
  return parse_rows(body);
}

Result<Etcd::Rows> Etcd::parse_rows(std::string_view body) {
  const Json answer = parsed(body);
  if (!answer.is_object()) return not_etcd("kv/range");
  const auto header = answer.find("header");
  Rows rows;
  if (header != answer.end()) rows.revision = number_of(*header, "revision");
  if (rows.revision == 0) return not_etcd("kv/range");
  const auto kvs = answer.find("kvs");
  if (kvs == answer.end()) return rows;
  if (!kvs->is_array()) return not_etcd("kv/range");
  for (const Json& kv : *kvs) {
    auto key = kv.is_object() ? bytes_of(kv, "key") : std::nullopt;
    auto value = key ? bytes_of(kv, "value") : std::nullopt;
    if (!value) return not_etcd("kv/range");
    rows.rows.push_back({std::move(*key), std::move(*value), number_of(kv, "mod_revision")});
  }
  return rows;
}

Result<Etcd::Rows> Etcd::read_one(const std::string& key, std::uint64_t revision) {
  Json range = {{"key", to_base64(key)}};
  if (revision != 0) range["revision"] = std::to_string(revision);
  PRECIS_ASSIGN(const std::string body, call("kv/range", range.dump(), time_));
  return parse_rows(body);
}

Result<Etcd::Rows> Etcd::read_page(const std::string& prefix, const Page& page) {
  Json range = range_of(prefix);
  if (!page.after.empty()) range["key"] = to_base64(page.after + '\0');
  if (page.revision != 0) range["revision"] = std::to_string(page.revision);
  if (page.changed_since != 0) range["min_mod_revision"] = std::to_string(page.changed_since + 1);
  range["limit"] = std::to_string(page.limit);
  range["keys_only"] = page.keys_only;
  PRECIS_ASSIGN(const std::string body, call("kv/range", range.dump(), time_));
  return parse_rows(body);
}

Result<std::uint64_t> Etcd::write_all(const Change& change) {
  Json done = Json::array();
  for (const Row& put : change.puts) {
    done.push_back(
        {{"request_put", {{"key", to_base64(put.key)}, {"value", to_base64(put.value)}}}});
  }
  for (const std::string& key : change.removed) {
    done.push_back({{"request_delete_range", {{"key", to_base64(key)}}}});
  }
  return write_if(change.over, done.dump());
}

Status Etcd::write(const Row& row, Lease lease) {
  const Json put = {{"key", to_base64(row.key)},
                    {"value", to_base64(row.value)},
                    {"lease", std::to_string(lease)}};
  return write_if(row, Json::array({{{"request_put", put}}}).dump()).status();
}

Result<std::uint64_t> Etcd::write_if(const Row& over, const std::string& requests) {
  const Json compare = {{"key", to_base64(over.key)},
                        {"target", "MOD"},
                        {"result", "EQUAL"},
                        {"mod_revision", std::to_string(over.revision)}};
  const std::string request =
      R"({"compare":[)" + compare.dump() + R"(],"success":)" + requests + "}";
  PRECIS_ASSIGN(const std::string body, call("kv/txn", request, time_));
  const Json answer = parsed(body);
  const auto header = answer.is_object() ? answer.find("header") : answer.end();
  if (header == answer.end()) return not_etcd("kv/txn");
  const auto succeeded = answer.find("succeeded");
  if (succeeded == answer.end() || *succeeded != true) {
    return Status::conflict("etcd has another revision of " + over.key);
  }
  const std::uint64_t revision = number_of(*header, "revision");
  if (revision == 0) return not_etcd("kv/txn");
  return revision;
}

Status Etcd::put(const std::string& key, const std::string& value) {
  const Json row = {{"key", to_base64(key)}, {"value", to_base64(value)}};
  return call("kv/put", row.dump(), time_).status();
}

Status Etcd::remove(const std::string& key) {
  return call("kv/deleterange", Json({{"key", to_base64(key)}}).dump(), time_).status();
}

Status Etcd::remove_below(const std::string& prefix) {
  return call("kv/deleterange", range_of(prefix).dump(), time_).status();
}

Result<bool> Etcd::await_change(const std::string& prefix, std::uint64_t revision,
                                std::chrono::milliseconds time) {
  Json range = range_of(prefix);
  range["start_revision"] = std::to_string(revision + 1);
  // One line says that the watch has begun. The next one is a change, or the end of the watch.
  const auto enough = [](std::string_view body) { return std::ranges::count(body, '\n') > 1; };
  const auto body = call("watch", Json({{"create_request", range}}).dump(), time, enough);
  if (body.status().code() == StatusCode::kTimedOut) return false;
  PRECIS_TRY(body.status());
  if (!enough(*body)) return Status::unavailable("etcd has ended a watch");
  return true;
}

Result<Etcd::Lease> Etcd::grant(std::chrono::seconds time) {
  const Json request = {{"TTL", std::to_string(time.count())}};
  PRECIS_ASSIGN(const std::string body, call("lease/grant", request.dump(), time_));
  const Lease lease = number_of(parsed(body), "ID");
  if (lease == 0) return not_etcd("lease/grant");
  return lease;
}

Status Etcd::keep_alive(Lease lease) {
  const Json request = {{"ID", std::to_string(lease)}};
  PRECIS_ASSIGN(const std::string body, call("lease/keepalive", request.dump(), time_));
  const Json answer = parsed(body);
  const auto result = answer.is_object() ? answer.find("result") : answer.end();
  if (result == answer.end()) return not_etcd("lease/keepalive");
  if (number_of(*result, "TTL") > 0) return {};
  return Status::not_found("the lease in etcd has ended");
}

Status Etcd::revoke(Lease lease) {
  const Json request = {{"ID", std::to_string(lease)}};
  return call("lease/revoke", request.dump(), time_).status();
}

}  // namespace precis::cluster
