#include "cachesvc/base/config_changes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "cachesvc/base/config_settings.h"

namespace precis {
namespace {

// A value other than the default for every key. A new key needs one here, and must be either
// adopted by a running service or reported as needing a restart.
const std::map<std::string, std::string> kOtherValues = {
    {"data_dir", "'elsewhere'"},
    {"listen", "'127.0.0.1:1'"},
    {"memory_bytes", "'64MiB'"},
    {"memory_wait_ms", "1"},
    {"device", "'cpu'"},
    {"compute_threads", "3"},
    {"listen_unix", "'off'"},
    {"tls_cert", "'cert.pem'"},
    {"tls_key", "'key.pem'"},
    {"tls_client_ca", "'ca.pem'"},
    {"admin", "'127.0.0.1:7471'"},
    {"admin_token_file", "'admin.token'"},
    {"admin_tls_cert", "'admin.pem'"},
    {"admin_tls_key", "'admin.key'"},
    {"admin_tls_ca", "'operators.pem'"},
    {"kv_events", "'tcp://127.0.0.1:5557'"},
    {"kv_events_topic", "'kv/'"},
    {"kv_events_access", "'network'"},
    {"otlp_endpoint", "'http://127.0.0.1:4318/v1/traces'"},
    {"trace_sample", "0.1"},
    {"trace_spans_per_s", "5"},
    {"cluster_etcd", "'http://127.0.0.1:2379'"},
    {"cluster_tls_ca", "'ca.pem'"},
    {"cluster_tls_cert", "'etcd.pem'"},
    {"cluster_tls_key", "'etcd.key'"},
    {"cluster_name", "'other'"},
    {"cluster_node", "'a'"},
    {"cluster_address", "'10.0.0.1:7470'"},
    {"cluster_weight", "50"},
    {"cluster_lease_s", "9"},
    {"cluster_hot_bytes_per_s", "9"},
    {"cluster_ceph_conf", "'/etc/ceph/ceph.conf'"},
    {"cluster_ceph_user", "'client.other'"},
    {"cluster_ceph_pool", "'other'"},
    {"cluster_s3", "'http://127.0.0.1:8333/bucket'"},
    {"cluster_s3_keys", "'s3-keys'"},
    {"cluster_s3_region", "'eu-central-1'"},
    {"cluster_s3_ca", "'ca.pem'"},
    {"warm_disk_bytes", "'1GiB'"},
    {"rdma", "'off'"},
    {"tidy_after_ms", "1"},
    {"min_free_bytes", "'64MiB'"},
    {"backup_dir", "'/backups'"},
    {"max_disk_bytes", "'1GiB'"},
    {"max_pinned_share", "0.25"},
    {"capacity_policy", "'lru'"},
    {"trim_ladder", "[0.5, 0.25]"},
    {"consolidate", "false"},
    {"log_level", "'debug'"},
    {"audit_log", "'stderr'"},
    {"max_requests", "5"},
    {"max_message_bytes", "'300MiB'"},
    {"max_puts", "5"},
    {"silent_client_ms", "5"},
    {"default_recipe", "'knorm'"},
    {"default_recipe_with_profile", "''"},
    {"default_keep", "0.5"},
    {"default_limit", "0.5"},
};

std::vector<std::string> keys_of(const std::vector<SettingChange>& changes) {
  std::vector<std::string> keys;
  for (const SettingChange& change : changes) keys.push_back(change.key);
  return keys;
}

}  // namespace

TEST_CASE("every key that differs is taken up or named", "[unit][server]") {
  const Config running;
  each_setting([&](const std::string& key, auto, Adopted) {
    CAPTURE(key);
    REQUIRE(kOtherValues.contains(key));
    const Config next = Config::parse(key + " = " + kOtherValues.at(key), "here").value();
    const ConfigChanges changes = changes_between(running, next);
    REQUIRE(changes.live.size() + changes.restart.size() == 1);
    const bool live = !changes.live.empty();
    CHECK((live ? changes.live : changes.restart).front().key == key);
    // with_live_settings() changes the settings that are called live, and no others.
    const ConfigChanges left = changes_between(with_live_settings(running, next), next);
    CHECK(left.live.empty());
    CHECK(left.restart.empty() == live);
  });
}

TEST_CASE("numbers that differ have texts that differ", "[unit][server]") {
  Config running, next;
  running.trace_sample = 0.3;
  next.trace_sample = 0.3000001;
  const ConfigChanges changes = changes_between(running, next);
  REQUIRE(changes.live.size() == 1);
  CHECK(changes.live[0] == SettingChange{"trace_sample", "0.3", "0.3000001"});
}

TEST_CASE("limits, the level of the log and tenants are taken up by a running service",
          "[unit][server]") {
  Config next;
  next.max_requests = next.max_puts = next.silent_client_ms = next.memory_wait_ms = 7;
  next.log_level = "debug";
  next.audit_log = "stderr";
  next.tenants = {{"red", "t", ""}};
  CHECK(changes_between({}, next).restart.empty());
  CHECK(keys_of(changes_between({}, next).live) ==
        std::vector<std::string>{"memory_wait_ms", "log_level", "audit_log", "max_requests",
                                 "max_puts", "silent_client_ms", "tenant red"});
}

TEST_CASE("a change of a number is seen in its texts, however small it is", "[unit][server]") {
  Config running, next;
  running.trace_sample = 0.3;
  next.trace_sample = 0.300000001;
  const auto changes = changes_between(running, next).live;
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].from == "0.3");
  CHECK(changes[0].to == "0.300000001");
}

TEST_CASE("a service with TLS takes up other files of it, and one without can't begin with it",
          "[unit][server]") {
  Config plain, old, next;
  old.tls_cert = old.tls_key = old.tls_client_ca = "old";
  next.tls_cert = next.tls_key = next.tls_client_ca = "next";
  old.admin_tls_cert = old.admin_tls_key = old.admin_tls_ca = "old";
  next.admin_tls_cert = next.admin_tls_key = next.admin_tls_ca = "next";
  const std::vector<std::string> keys{"tls_cert",       "tls_key",       "tls_client_ca",
                                      "admin_tls_cert", "admin_tls_key", "admin_tls_ca"};
  CHECK(keys_of(changes_between(old, next).live) == keys);
  CHECK(with_live_settings(old, next) == next);
  CHECK(keys_of(changes_between(plain, next).restart) == keys);
  CHECK(with_live_settings(plain, next) == plain);
  CHECK(keys_of(changes_between(old, plain).restart) == keys);
  CHECK(with_live_settings(old, plain) == old);
}

TEST_CASE("another token in the admin port's file waits for a restart, and is no secret told",
          "[unit][server]") {
  Config running, next;
  running.admin_token_file = next.admin_token_file = "admin.token";
  running.admin_token = "secret1";
  next.admin_token = "secret2";
  const ConfigChanges changes = changes_between(running, next);
  CHECK(changes.live.empty());
  REQUIRE(keys_of(changes.restart) == std::vector<std::string>{"admin_token_file"});
  CHECK((changes.restart[0].from + changes.restart[0].to).find("secret") == std::string::npos);
  CHECK(with_live_settings(running, next).admin_token == "secret1");
  next.admin_token_file = "other.token";  // the path says it already
  CHECK(changes_between(running, next).restart.size() == 1);
}

TEST_CASE("what changed of a tenant is told, and no secret", "[unit][server]") {
  Config running, next;
  running.tenants = {{"same", "t0", ""}, {"gone", "secret1", ""}, {"red", "secret2", "salt2"}};
  next.tenants = {{"same", "t0", ""}, {"red", "secret3", "salt3"}, {"new", "", "", 7}};
  const auto live = changes_between(running, next).live;
  CHECK(keys_of(live) == std::vector<std::string>{"tenant gone", "tenant new", "tenant red"});
  CHECK(live[0].to == "not there");
  CHECK(live[1].from == "not there");
  CHECK(live[1].to == "no token, weight 7");
  CHECK(live[2].to == "with a token, with a salt, the token is another, the salt is another");
  for (const SettingChange& change : live) {
    CHECK((change.from + change.to).find("secret") == std::string::npos);
    CHECK((change.from + change.to).find("salt3") == std::string::npos);
  }
}

}  // namespace precis
