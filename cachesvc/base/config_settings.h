// The settings of the configuration file except tenants, one line each, in the order of
// deploy/precisd.toml. Reading the file, comparing it with a running service's configuration and
// adopting it follow from this table.
#pragma once

#include "cachesvc/base/config.h"

namespace precis {

// When a running service that reads its file again adopts another value of a setting.
enum class Adopted {
  kRestart,     // never; the service names the setting in its log
  kReload,      // at once; a part reads it from the Config in force, or Reloader passes it on
  kIfTls,       // at once if TLS is on and stays on
  kIfAdminTls,  // as kIfTls, for TLS of the admin port
};

// Calls visit(key, member of Config, Adopted) for each setting. A std::uint64_t is a number of
// bytes: the file may have a unit.
template <typename Visit>
void each_setting(Visit visit) {
  using enum Adopted;
  visit("data_dir", &Config::data_dir, kRestart);
  visit("listen", &Config::listen, kRestart);
  visit("memory_bytes", &Config::memory_bytes, kRestart);
  visit("memory_wait_ms", &Config::memory_wait_ms, kReload);
  visit("device", &Config::device, kRestart);
  visit("compute_threads", &Config::compute_threads, kRestart);
  visit("listen_unix", &Config::listen_unix, kRestart);
  visit("tls_cert", &Config::tls_cert, kIfTls);
  visit("tls_key", &Config::tls_key, kIfTls);
  visit("tls_client_ca", &Config::tls_client_ca, kIfTls);
  visit("admin", &Config::admin, kRestart);
  visit("admin_token_file", &Config::admin_token_file, kRestart);
  visit("admin_tls_cert", &Config::admin_tls_cert, kIfAdminTls);
  visit("admin_tls_key", &Config::admin_tls_key, kIfAdminTls);
  visit("admin_tls_ca", &Config::admin_tls_ca, kIfAdminTls);
  visit("kv_events", &Config::kv_events, kRestart);
  visit("kv_events_topic", &Config::kv_events_topic, kRestart);
  visit("kv_events_access", &Config::kv_events_access, kRestart);
  visit("otlp_endpoint", &Config::otlp_endpoint, kRestart);
  visit("trace_sample", &Config::trace_sample, kReload);
  visit("trace_spans_per_s", &Config::trace_spans_per_s, kReload);
  visit("cluster_etcd", &Config::cluster_etcd, kRestart);
  visit("cluster_tls_ca", &Config::cluster_tls_ca, kRestart);
  visit("cluster_tls_cert", &Config::cluster_tls_cert, kRestart);
  visit("cluster_tls_key", &Config::cluster_tls_key, kRestart);
  visit("cluster_name", &Config::cluster_name, kRestart);
  visit("cluster_node", &Config::cluster_node, kRestart);
  visit("cluster_address", &Config::cluster_address, kRestart);
  visit("cluster_weight", &Config::cluster_weight, kRestart);
  visit("cluster_lease_s", &Config::cluster_lease_s, kRestart);
  visit("cluster_hot_bytes_per_s", &Config::cluster_hot_bytes_per_s, kRestart);
  visit("cluster_ceph_conf", &Config::cluster_ceph_conf, kRestart);
  visit("cluster_ceph_user", &Config::cluster_ceph_user, kRestart);
  visit("cluster_ceph_pool", &Config::cluster_ceph_pool, kRestart);
  visit("cluster_s3", &Config::cluster_s3, kRestart);
  visit("cluster_s3_keys", &Config::cluster_s3_keys, kRestart);
  visit("cluster_s3_region", &Config::cluster_s3_region, kRestart);
  visit("cluster_s3_ca", &Config::cluster_s3_ca, kRestart);
  visit("warm_disk_bytes", &Config::warm_disk_bytes, kReload);
  visit("rdma", &Config::rdma, kRestart);
  visit("tidy_after_ms", &Config::tidy_after_ms, kRestart);    // the store was opened with it
  visit("min_free_bytes", &Config::min_free_bytes, kRestart);  // as tidy_after_ms
  visit("backup_dir", &Config::backup_dir, kRestart);
  visit("max_disk_bytes", &Config::max_disk_bytes, kReload);
  visit("max_pinned_share", &Config::max_pinned_share, kReload);
  visit("capacity_policy", &Config::capacity_policy, kReload);
  visit("trim_ladder", &Config::trim_ladder, kReload);
  visit("consolidate", &Config::consolidate, kReload);
  visit("log_level", &Config::log_level, kReload);
  visit("audit_log", &Config::audit_log, kReload);
  visit("max_requests", &Config::max_requests, kReload);
  visit("max_message_bytes", &Config::max_message_bytes, kRestart);  // the transport has it
  visit("max_puts", &Config::max_puts, kReload);
  visit("silent_client_ms", &Config::silent_client_ms, kReload);
  visit("default_recipe", &Config::default_recipe, kRestart);
  visit("default_recipe_with_profile", &Config::default_recipe_with_profile, kRestart);
  visit("default_keep", &Config::default_keep, kRestart);
  visit("default_limit", &Config::default_limit, kRestart);
}

}  // namespace precis
