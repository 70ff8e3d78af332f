#include <catch2/catch.hpp>
#include <functional>

#include "cachesvc/cluster/membership.h"

namespace precis::cluster {
namespace {

using Catch::Matchers::Contains;

std::string problems(const std::function<void(Config&)>& change) {
  Config config;
  config.cluster_etcd = "http://127.0.0.1:2379";
  config.cluster_node = "a";
  change(config);
  return check_config(config).message();
}

}  // namespace

TEST_CASE("a service needs no settings of a cluster", "[cluster]") {
  CHECK(check_config(Config()).ok());
  CHECK(problems([](Config&) {}).empty());
}

TEST_CASE("settings of a cluster without its etcd are refused", "[cluster]") {
  const auto told = [](const std::function<void(Config&)>& change) {
    Config config;
    change(config);
    return check_config(config).message();
  };
  CHECK(told([](Config& c) { c.cluster_name = "other"; }) ==
        "cluster_name is of a cluster, and cluster_etcd is missing: set both or neither");
  CHECK_THAT(told([](Config& c) { c.cluster_node = "a"; }), Contains("cluster_node is"));
  CHECK_THAT(told([](Config& c) { c.cluster_address = "a:1"; }), Contains("cluster_address is"));
  CHECK_THAT(told([](Config& c) { c.cluster_weight = 7; }), Contains("cluster_weight is"));
  CHECK_THAT(told([](Config& c) { c.cluster_ceph_conf = "ceph.conf"; }),
             Contains("cluster_ceph_conf is"));
  CHECK_THAT(told([](Config& c) { c.warm_disk_bytes = 1; }), Contains("warm_disk_bytes is"));
  CHECK_THAT(told([](Config& c) { c.cluster_s3 = "http://h/bucket"; }), Contains("cluster_s3 is"));
  CHECK_THAT(told([](Config& c) { c.cluster_lease_s = 7; }), Contains("cluster_lease_s is"));
  CHECK_THAT(told([](Config& c) { c.cluster_tls_ca = "a.pem"; }), Contains("cluster_tls_ca is"));
  CHECK_THAT(told([](Config& c) { c.cluster_tls_cert = "a.pem"; }), Contains("cluster_tls_cert"));
  CHECK_THAT(told([](Config& c) { c.cluster_tls_key = "a.pem"; }), Contains("cluster_tls_key is"));
}

TEST_CASE("the members of etcd are separated by commas, and spaces if one likes", "[cluster]") {
  const auto members = parse_etcd_urls("http://10.0.0.1:2379, http://10.0.0.2:2379").value();
  REQUIRE(members.size() == 2);
  CHECK(members[1].authority == "10.0.0.2:2379");
}

TEST_CASE("a wrong setting of a cluster is named with the right form", "[cluster]") {
  CHECK_THAT(problems([](Config& c) { c.cluster_etcd = "10.0.0.1:2379"; }),
             Contains("cluster_etcd: '10.0.0.1:2379' must be http://HOST:PORT"));
  for (const char* name : {"", "a/b", "a b", "\xc3\xa9"}) {
    CHECK_THAT(problems([&](Config& c) { c.cluster_name = name; }), Contains("cluster_name is '"));
  }
  CHECK_THAT(problems([](Config& c) { c.cluster_node = std::string(64, 'a'); }),
             Contains("cluster_node is 'aaa"));
  CHECK_THAT(problems([](Config& c) { c.warm_disk_bytes = 1; }),
             Contains("warm_disk_bytes needs a storage that the nodes share"));
  CHECK(problems([](Config& c) {
          c.warm_disk_bytes = 1;
          c.cluster_ceph_conf = "ceph.conf";
        }).empty());
  CHECK_THAT(problems([](Config& c) { c.cluster_s3 = "http://h/bucket"; }),
             Contains("cluster_s3 and cluster_s3_keys belong together"));
  CHECK_THAT(problems([](Config& c) { c.cluster_s3 = c.cluster_ceph_conf = "x"; }),
             Contains("cluster_s3 and cluster_ceph_conf exclude each other"));
  CHECK_THAT(problems([](Config& c) { c.cluster_weight = 0; }),
             Contains("cluster_weight is 0, must be in [1, 1000000]; precisctl cluster drain"));
  for (const std::uint32_t seconds : {0, 1, 601}) {
    CHECK_THAT(problems([&](Config& c) { c.cluster_lease_s = seconds; }),
               Contains("cluster_lease_s is " + std::to_string(seconds)));
  }
}

TEST_CASE("a node must say where clients reach it", "[cluster]") {
  for (const char* listen : {"0.0.0.0:7470", "[::]:7470"}) {
    CHECK_THAT(problems([&](Config& c) { c.listen = listen; }),
               Contains("cluster_address: give the HOST:PORT at which clients reach this node; '" +
                        std::string(listen) + "', which listen is, is no such address"));
    CHECK(problems([&](Config& c) {
            c.listen = listen;
            c.cluster_address = "node-1.example:7470";
          }).empty());
  }
  CHECK_THAT(problems([](Config& c) { c.cluster_address = "node-1"; }),
             Contains("'node-1' is no such address"));
  CHECK_THAT(problems([](Config& c) { c.cluster_address = "node-1:0"; }),
             Contains("'node-1:0' has the port 0"));
  CHECK_THAT(problems([](Config& c) { c.cluster_etcd = "http://10.0.0.1:2379"; }),
             Contains("which listen is, reaches only this host"));
}

TEST_CASE("the files for an etcd with https are read", "[cluster]") {
  CHECK(problems([](Config& c) { c.cluster_etcd = "https://127.0.0.1:2379"; }).empty());
  CHECK_THAT(problems([](Config& c) {
               c.cluster_etcd = "https://127.0.0.1:2379";
               c.cluster_tls_ca = "/missing/ca.pem";
             }),
             Contains("cluster_tls_ca: cannot read /missing/ca.pem"));
  CHECK_THAT(problems([](Config& c) { c.cluster_tls_cert = "a.pem"; }),
             Contains("cluster_tls_cert and cluster_tls_key belong together"));
}

TEST_CASE("all problems are named at once, with their place", "[cluster]") {
  const std::string all = problems([](Config& c) {
    c.cluster_weight = 0;
    c.cluster_lease_s = 1;
    c.said_at["cluster_weight"] = "precisd.toml:3";
  });
  CHECK_THAT(all, Contains("precisd.toml:3: cluster_weight is 0"));
  CHECK_THAT(all, Contains("\ncluster_lease_s is 1"));
}

}  // namespace precis::cluster
