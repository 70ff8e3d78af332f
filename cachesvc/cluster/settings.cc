// The settings of a cluster in the configuration.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cachesvc/cluster/membership.h"
#include "cachesvc/cluster/view.h"
#include "cachesvc/net/address.h"
#include "precis/limits.h"

namespace precis::cluster {
namespace {

// etcd gives no shorter leases than about one and a half election timeouts.
constexpr std::uint32_t kLeaseMin = 2, kLeaseMax = 600;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string node_of(const Config& config) {
  return config.cluster_node.empty() ? host_name() : config.cluster_node;
}

// The TLS of connections to etcd; null if none of its members has https.
Result<std::shared_ptr<TlsContext>> read_etcd_tls(const Config& config) {
  PRECIS_ASSIGN(const auto members, parse_etcd_urls(config.cluster_etcd));
  if (std::ranges::none_of(members, &HttpEndpoint::encrypted)) return std::shared_ptr<TlsContext>();
  return TlsContext::for_client(
      {config.cluster_tls_cert, config.cluster_tls_key, config.cluster_tls_ca});
}

// Empty if clients can use the address: those of other hosts, or of this host if etcd is only here.
std::string problem_of_address(const Config& config) {
  const bool given = !config.cluster_address.empty();
  const std::string& address = given ? config.cluster_address : config.listen;
  const auto parts = split_address(address);
  const bool is_any = parts.ok() && (parts->host == "0.0.0.0" || parts->host == "::");
  const bool is_text = is_plain(address) && address.size() <= limits::kNameBytesMax;
  if (!parts.ok() || is_any || !is_text) return "is no such address";
  if (given && parts->number == 0) return "has the port 0";
  const auto members = parse_etcd_urls(config.cluster_etcd);
  const bool is_here =
      !members.ok() || std::ranges::all_of(*members, [](const HttpEndpoint& member) {
        return is_loopback(member.authority);
      });
  return is_loopback(address) && !is_here ? "reaches only this host, and etcd is on others" : "";
}

// Names a setting that has no effect without cluster_etcd, if there is one.
Status check_unused(const Config& config) {
  const Config defaults;
  const auto check = [&](const char* key, bool is_default) -> Status {
    if (is_default) return {};
    return Status::invalid(config.origin(key) + key +
                           " is of a cluster, and cluster_etcd is missing: set both or neither");
  };
  PRECIS_TRY(check("cluster_name", config.cluster_name == defaults.cluster_name));
  PRECIS_TRY(check("cluster_node", config.cluster_node.empty()));
  PRECIS_TRY(check("cluster_address", config.cluster_address.empty()));
  PRECIS_TRY(check("cluster_weight", config.cluster_weight == defaults.cluster_weight));
  PRECIS_TRY(check("cluster_lease_s", config.cluster_lease_s == defaults.cluster_lease_s));
  PRECIS_TRY(check("cluster_hot_bytes_per_s",
                   config.cluster_hot_bytes_per_s == defaults.cluster_hot_bytes_per_s));
  PRECIS_TRY(check("cluster_tls_ca", config.cluster_tls_ca == defaults.cluster_tls_ca));
  PRECIS_TRY(check("cluster_tls_cert", config.cluster_tls_cert.empty()));
  PRECIS_TRY(check("cluster_ceph_conf", config.cluster_ceph_conf.empty()));
  PRECIS_TRY(check("cluster_ceph_user", config.cluster_ceph_user == defaults.cluster_ceph_user));
  PRECIS_TRY(check("cluster_ceph_pool", config.cluster_ceph_pool == defaults.cluster_ceph_pool));
  PRECIS_TRY(check("cluster_s3", config.cluster_s3.empty()));
  PRECIS_TRY(check("cluster_s3_keys", config.cluster_s3_keys.empty()));
  PRECIS_TRY(check("cluster_s3_region", config.cluster_s3_region == defaults.cluster_s3_region));
  PRECIS_TRY(check("cluster_s3_ca", config.cluster_s3_ca == defaults.cluster_s3_ca));
  PRECIS_TRY(check("warm_disk_bytes", config.warm_disk_bytes == 0));
  return check("cluster_tls_key", config.cluster_tls_key.empty());
}

// Nodes may reach the same storage by several addresses, so these do not count.
std::string storage_of(const Config& config) {
  if (!config.cluster_ceph_conf.empty()) {
    return "the pool '" + config.cluster_ceph_pool + "' of a Ceph";
  }
  if (config.cluster_s3.empty()) return "no storage";
  return "the bucket '" + config.cluster_s3.substr(config.cluster_s3.rfind('/') + 1) + "'";
}

}  // namespace

Status check_config(const Config& config) {
  if (config.cluster_etcd.empty()) return check_unused(config);
  std::string problems;
  const auto require = [&](bool holds, const char* key, const std::string& what) {
    if (!holds) problems += (problems.empty() ? "" : "\n") + config.origin(key) + key + what;
  };
  const Status etcd = parse_etcd_urls(config.cluster_etcd).status();
  require(etcd.ok(), "cluster_etcd", ": " + etcd.message());
  const Status tls = etcd.ok() ? read_etcd_tls(config).status() : Status();
  require(tls.ok(), "cluster_", tls.message());  // which begins with tls_ca, tls_cert or tls_key
  require(config.cluster_tls_cert.empty() == config.cluster_tls_key.empty(), "cluster_tls_cert",
          " and cluster_tls_key belong together: give both or neither");
  const std::string form = ", must be 1 to 63 letters, digits, dots, hyphens or underscores";
  require(is_name(config.cluster_name), "cluster_name", " is '" + config.cluster_name + "'" + form);
  require(is_name(node_of(config)), "cluster_node",
          (config.cluster_node.empty() ? ": the host's name is '" : " is '") + node_of(config) +
              "'" + form);
  require(config.cluster_weight >= 1 && config.cluster_weight <= kWeightMax, "cluster_weight",
          " is " + std::to_string(config.cluster_weight) + ", must be in [1, " +
              std::to_string(kWeightMax) + "]; precisctl cluster drain empties a node");
  require(config.cluster_lease_s >= kLeaseMin && config.cluster_lease_s <= kLeaseMax,
          "cluster_lease_s",
          " is " + std::to_string(config.cluster_lease_s) + ", must be in [" +
              std::to_string(kLeaseMin) + ", " + std::to_string(kLeaseMax) + "]");
  const bool shares = !config.cluster_ceph_conf.empty() || !config.cluster_s3.empty();
  require(shares || config.warm_disk_bytes == 0, "warm_disk_bytes",
          " needs a storage that the nodes share (cluster_ceph_conf or cluster_s3), which has what "
          "their disks do not keep; else set max_disk_bytes");
  require(config.cluster_s3.empty() || config.cluster_ceph_conf.empty(), "cluster_s3",
          " and cluster_ceph_conf exclude each other: set one of them");
  require(config.cluster_s3.empty() == config.cluster_s3_keys.empty(), "cluster_s3",
          " and cluster_s3_keys belong together: give both or neither");
  const std::string address = problem_of_address(config);
  require(address.empty(), "cluster_address",
          ": give the HOST:PORT at which clients reach this node; '" +
              (config.cluster_address.empty() ? config.listen + "', which listen is, "
                                              : config.cluster_address + "' ") +
              address);
  return problems.empty() ? Status() : Status::invalid(problems);
}

Result<std::unique_ptr<Membership>> join(const Config& config, const std::string& listen,
                                         const std::string& version, Runtime& runtime, Log& log,
                                         AgreedCopy& copy) {
  if (config.cluster_etcd.empty()) return std::unique_ptr<Membership>();
  PRECIS_TRY(check_config(config));
  PRECIS_ASSIGN(auto etcd, parse_etcd_urls(config.cluster_etcd));
  PRECIS_ASSIGN(auto tls, read_etcd_tls(config));
  return std::make_unique<Membership>(
      Membership::Settings{std::move(etcd), std::move(tls), config.cluster_name, node_of(config),
                           config.cluster_address.empty() ? listen : config.cluster_address,
                           version, config.cluster_weight,
                           std::chrono::seconds(config.cluster_lease_s), storage_of(config)},
      runtime, log, copy);
}

}  // namespace precis::cluster
