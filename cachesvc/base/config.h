// The process's settings: the defaults here, then the TOML file, then flags. A missing setting has
// its default. A wrong setting stops the process, with every problem listed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/tenant_config.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::uint32_t kComputeThreadsMax = 1024;

struct Config {
  std::string data_dir;                   // the folder of all stored data; required
  std::string listen = "127.0.0.1:7470";  // host:port; port 0 picks one
  std::uint64_t memory_bytes = 0;     // arena: staging and hot tier; 0: a quarter of the machine
  std::uint32_t compute_threads = 0;  // 0: every core
  std::string device = "auto";        // device that compresses layers, as DeviceChoice::parse()
  std::string log_level = "info";
  std::string audit_log;  // a file, or "stderr" (audit.h); empty: no audit log
  // The path of a Unix socket, "auto" (precisd.sock in data_dir), or "off".
  std::string listen_unix = "auto";
  // PEM files. With the first two, TCP uses TLS 1.3. With the third, clients must also show a
  // certificate that this CA signed.
  std::string tls_cert, tls_key, tls_client_ca;
  // HTTP for operators (cachesvc/admin): IP:PORT, or empty for none. admin_token_file is a file
  // with the token that requests must show (read_tokens()).
  std::string admin, admin_token_file;
  // PEM files, for TLS on that port as on `listen`. Without admin_token_file and admin_tls_ca, the
  // address must be a loopback.
  std::string admin_tls_cert, admin_tls_key, admin_tls_ca;
  std::string admin_token;  // content of admin_token_file; not a setting
  // KV events over ZeroMQ (cachesvc/publish): tcp://IP:PORT, or empty for none. A message's topic
  // is kv_events_topic and the tenant's name. kv_events_access: "local", then the address must be a
  // loopback, or "network".
  std::string kv_events, kv_events_topic = "precis/", kv_events_access = "local";
  // Traces (cachesvc/trace): where spans are sent, http://HOST:PORT/PATH, or empty for none.
  std::string otlp_endpoint;
  double trace_sample = 0;                 // of requests without a traceparent, the traced share
  std::uint32_t trace_spans_per_s = 1000;  // at most, of all requests; others are dropped
  // A cluster (cachesvc/cluster): URLs of etcd's members, separated by commas, or empty for none.
  std::string cluster_etcd;
  // PEM files for an etcd with https. The CA may be "system"; the others are for an etcd that asks
  // clients for a certificate.
  std::string cluster_tls_ca = "system", cluster_tls_cert, cluster_tls_key;
  std::string cluster_name = "precis";  // clusters of different names can share an etcd
  std::string cluster_node;             // this node's name; empty: the host's
  std::string cluster_address;          // HOST:PORT at which clients reach it; empty: as `listen`
  std::uint32_t cluster_weight = 100;   // this node's share of the data is proportional to it
  std::uint32_t cluster_lease_s = 5;    // a node that is silent this long loses its shards
  // If a node serves more of a prefix, other nodes serve the prefix too; 0: never.
  std::uint64_t cluster_hot_bytes_per_s = std::uint64_t{1} << 28;
  // Storage that the nodes share (cachesvc/shared): Ceph's configuration file, or empty for none.
  std::string cluster_ceph_conf, cluster_ceph_user = "client.precis", cluster_ceph_pool = "precis";
  // The bucket that all nodes share instead: its URL, and a file with the keys of its user.
  std::string cluster_s3, cluster_s3_keys;
  std::string cluster_s3_region = "us-east-1", cluster_s3_ca = "system";
  // If nodes share a storage: the most record bytes on a node's disk; 0: what it has room for.
  std::uint64_t warm_disk_bytes = 0;
  // One-sided transfers: "auto" (if the host has a device), "off", or devices separated by commas.
  std::string rdma = "auto";
  std::uint32_t memory_wait_ms = 30'000;  // puts and reads wait this long for memory
  // Overload limits over all connections. A request past a limit is rejected with a time to retry.
  std::uint32_t max_requests = 4096;  // in progress at a time
  // A separate limit for each of: requests being received, requests in progress, unsent answers.
  std::uint64_t max_message_bytes = 256u << 20;
  std::uint32_t max_puts = 1024;  // in progress at a time
  // While a request waits for memory, a client that holds some and moves no data this long loses
  // it.
  std::uint32_t silent_client_ms = 20'000;
  // Delay between a removal and the compaction of payload files on the disk, if that frees space.
  std::uint32_t tidy_after_ms = 1000;
  // A put that would leave less free disk space is refused. 0: by the disk's size (DiskBudget).
  std::uint64_t min_free_bytes = 0;
  std::string backup_dir;  // the folder of the backups (cachesvc/backup); empty: no backups
  // The most that stored records take, of all tenants together. 0: only the disk is a limit. Above
  // 95% of it, the service trims and drops what is least valuable, down to 90% (capacity/steps.h).
  std::uint64_t max_disk_bytes = 0;
  double max_pinned_share = 0.5;          // of max_disk_bytes: the most that pinned sessions hold
  std::string capacity_policy = "value";  // or "lru"
  std::vector<double> trim_ladder = {0.3, 0.2, 0.1, 0.05};  // shares that trims go down to
  // Consolidates chains in the background (pipeline/consolidator.h), from consolidate_links small
  // segments on. The number is no setting: the simulation sets it.
  bool consolidate = true;
  std::uint32_t consolidate_links = 8;
  // Recipe and budget of puts that name none, if the catalog has no default for them.
  std::string default_recipe = "global_kvdiff(encoding=int8, min_entries=128)";
  // For models with a fitting profile. Empty: default_recipe for them as well.
  std::string default_recipe_with_profile = "global_kvprobe(encoding=int8, min_entries=128)";
  Budget default_keep = Budget::ratio_ppm(300'000);
  Budget default_limit = Budget::ratio_ppm(1'000'000);  // the most that a put gets; 1: no limit
  // If empty, the only tenant is "default" and needs no token. In a running service, also the
  // stored tenants, after the others.
  std::vector<TenantConfig> tenants;
  // False for a service inside a program (cachesvc/embed), which is the tenant "default". Not a
  // setting.
  bool takes_stored_tenants = true;
  // "FILE:LINE" of each setting in a file, by key; the first [[tenant]] has the key "tenant 0".
  // Code that overrides a setting of the file erases its entry.
  std::map<std::string, std::string, std::less<>> said_at;
  // Files that hold a token or the TLS key and that every user of this machine can read: each is
  // worth a warning.
  std::vector<std::string> exposed_files;

  // Reads `path` over the defaults. kNotFound if there is no such file, kInvalidArgument past
  // limits::kConfigBytesMax, or an error of parse().
  static Result<Config> load(const std::string& path);
  // Reads `toml` over the defaults. The message of kInvalidArgument names `where`, the line, the
  // key and the possible values.
  static Result<Config> parse(std::string_view toml, const std::string& where);
  // Reads the token of every tenant that has a token_file, and admin_token_file, without trailing
  // line ends. A relative path, or a path that begins with $CREDENTIALS_DIRECTORY, is relative to
  // `credentials_dir`, the folder of systemd's credentials. If that is empty, a relative path is
  // relative to `beside`. kInvalidArgument names every file that cannot be used.
  Status read_tokens(const std::string& credentials_dir, const std::string& beside);
  // Makes the paths of the TLS files absolute, by the same rule. kInvalidArgument if it cannot.
  Status find_tls_files(const std::string& credentials_dir, const std::string& beside);
  // kInvalidArgument with every problem, one per line.
  Status validate() const;
  // The prefix of a message about `key`: "FILE:LINE: ", or nothing if no file has set it.
  std::string origin(std::string_view key) const;
  std::string resolved_listen_unix() const;  // a path; empty: none
  std::uint64_t resolved_memory_bytes() const;
  std::uint32_t resolved_compute_threads() const;
  bool operator==(const Config&) const = default;
};

}  // namespace precis
