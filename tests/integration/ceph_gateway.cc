#include "tests/integration/ceph_gateway.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "cachesvc/shared/s3_tier.h"
#include "precis/status.h"
#include "tests/integration/free_port.h"
#include "tests/integration/s3_keys_file.h"

namespace precis::testing {
namespace {

constexpr char kGateway[] = "/usr/bin/radosgw";      // of the Debian package radosgw
constexpr char kAdmin[] = "/usr/bin/radosgw-admin";  // of ceph-common, which radosgw needs
constexpr char kSetpriv[] = "/usr/bin/setpriv";
constexpr char kUser[] = "client.admin";
constexpr char kId[] = "precis", kSecret[] = "precis-secret";
constexpr std::chrono::seconds kStart{60};

// Without tcp_nodelay, each GET takes 40 ms more. radosgw-admin reads these lines, too.
std::string settings_of_gateway(const std::string& folder, const std::string& port) {
  return std::string("\n[") + kUser + "]\nadmin_socket = " + folder +
         "/$pid.asok\nlog_file = " + folder + "/$pid.log\nrgw_data = " + folder +
         "\nrgw_frontends = beast endpoint=127.0.0.1:" + port +
         " tcp_nodelay=1\nrgw_enable_apis = s3\nrgw_thread_pool_size = 32\n";
}

}  // namespace

bool CephGateway::available() {
  return CephCluster::available() && std::filesystem::exists(kGateway) &&
         std::filesystem::exists(kAdmin);
}

CephGateway::CephGateway()
    : port_(free_port()), conf_(ceph_.conf_with(settings_of_gateway(dir_.path(), port_))) {
  // The gateway would make its pools with more placement groups, which one OSD starts more slowly.
  for (const std::string pool : {"log", "control", "meta", "buckets.index", "buckets.data"}) {
    ceph_.command(R"("prefix": "osd pool create", "pool": "default.rgw.)" + pool +
                  R"(", "pg_num": 4, "pgp_num": 4)");
  }
  make_user();
  start();
}

void CephGateway::make_user() const {
  const Ran ran = run({kAdmin, "--conf", conf_, "--name", kUser, "user", "create", "--uid", kId,
                       "--display-name", kId, "--access-key", kId, "--secret-key", kSecret});
  if (ran.exit_code != 0) check_failed(__FILE__, __LINE__, std::string(kAdmin) + ": " + ran.err);
}

void CephGateway::start() {
  // The kernel kills it when this thread ends, so that a test that is killed leaves none behind.
  const std::vector<std::string> command{kSetpriv, "--pdeathsig", "KILL",   "--",  kGateway,
                                         "--conf", conf_,         "--name", kUser, "-f"};
  process_ = std::make_unique<Process>(command);
  await_bucket();
}

// A put of an object without a name makes the bucket. Its answer does not matter, because the
// bucket may be there already.
void CephGateway::await_bucket() const {
  const auto store = make_s3_store(settings("start"));
  if (!store.ok()) check_failed(__FILE__, __LINE__, store.status().to_string());
  const auto until = std::chrono::steady_clock::now() + kStart;
  for (;;) {
    (void)(*store)->put("", {});
    const Status written = (*store)->put("ready", {});
    if (written.ok()) return;
    if (std::chrono::steady_clock::now() > until) {
      check_failed(__FILE__, __LINE__, written.to_string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

S3Settings CephGateway::settings(const std::string& space) const {
  S3Settings settings;
  settings.url = "http://127.0.0.1:" + port_ + "/precis-test";
  settings.keys_file = keys_file(kId, kSecret);
  settings.space = space;
  return settings;
}

std::string CephGateway::node_settings() const {
  const S3Settings as = settings("");
  return "cluster_s3 = '" + as.url + "'\ncluster_s3_keys = '" + as.keys_file + "'\n";
}

std::string CephGateway::keys_file(const std::string& id, const std::string& secret) const {
  return s3_keys_file(dir_.path(), id, secret);
}

void CephGateway::kill() { process_.reset(); }

void CephGateway::signal(int number) const { process_->signal(number); }

}  // namespace precis::testing
