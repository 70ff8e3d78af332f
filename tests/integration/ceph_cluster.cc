#include "tests/integration/ceph_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "precis/status.h"
#include "tests/integration/free_port.h"

namespace precis::testing {
namespace {

constexpr char kMonitor[] = "/usr/bin/ceph-mon";   // of the Debian package ceph-mon
constexpr char kOsd[] = "/usr/bin/ceph-osd";       // ceph-osd
constexpr char kMonmap[] = "/usr/bin/monmaptool";  // ceph-base
constexpr char kAuthtool[] = "/usr/bin/ceph-authtool";
constexpr char kSetpriv[] = "/usr/bin/setpriv";
constexpr std::chrono::seconds kStart{60};

// The settings of all processes, besides those that name files and addresses. The intervals make a
// start fast: with the usual bdev_aio_poll_ms, each of the times that an OSD closes its device
// takes a quarter of a second. Few threads and small caches are enough for some megabytes of data.
constexpr char kSettings[] = R"(
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_async_op_threads = 1
log_to_stderr = false
err_to_stderr = false
osd_crush_chooseleaf_type = 0
osd_heartbeat_interval = 1
osd_heartbeat_grace = 3
osd_pool_default_pg_num = 32
osd_pool_default_pgp_num = 32
osd_pool_default_pg_autoscale_mode = off

[mon]
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_osd_min_down_reporters = 1
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_data_avail_crit = 1

[osd]
osd_objectstore = bluestore
bluestore_fsck_on_mkfs = false
bdev_aio_poll_ms = 5
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 16777216
osd_memory_target = 939524096
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_scrub_begin_hour = 0
osd_max_scrubs = 0
)";

std::string new_uuid() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string uuid;
  PRECIS_CHECK(static_cast<bool>(std::getline(file, uuid)));
  return uuid;
}

std::vector<std::string> osd_command(const std::string& conf, const std::string& data,
                                     std::size_t osd) {
  return {kOsd, "--conf", conf, "--no-mon-config", "-i", std::to_string(osd), "--osd-data", data};
}

// Runs the command to its end. A failure ends the test run.
void complete(const std::vector<std::string>& command) {
  const Ran ran = run(command);
  if (ran.exit_code != 0) check_failed(__FILE__, __LINE__, command.front() + ": " + ran.err);
}

// Starts a process that the kernel kills when this thread ends, so that a test that is killed
// leaves none behind.
std::unique_ptr<Process> start(std::vector<std::string> command) {
  command.insert(command.begin(), {kSetpriv, "--pdeathsig", "KILL", "--"});
  return std::make_unique<Process>(command);
}

template <typename Done>
void await(const Done& done) {
  const auto until = std::chrono::steady_clock::now() + kStart;
  while (!done()) {
    PRECIS_CHECK(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

bool CephCluster::available() {
  return ::geteuid() == 0 && rados::load_rados().ok() &&
         std::ranges::all_of(
             std::initializer_list<const char*>{kMonitor, kOsd, kMonmap, kAuthtool, kSetpriv},
             [](const char* file) { return std::filesystem::exists(file); });
}

CephCluster::CephCluster(std::size_t osds) : port_(free_port()), osds_(osds) {
  for (std::size_t osd = 0; osd < osds; ++osd) uuids_.push_back(new_uuid());
  write_files();
  make_stores();
  monitor_ = start({kMonitor, "--conf", conf(), "-f", "-i", "a", "--mon-data", path("mon")});
  connect();
  for (std::size_t osd = 0; osd < osds; ++osd) {
    command(R"("prefix": "osd new", "id": )" + std::to_string(osd) + R"(, "uuid": ")" +
            uuids_[osd] + '"');
    start_osd(osd);
  }
  await_osds(osds);
  command(R"("prefix": "osd pool create", "pool": ")" + pool() + R"(", "pg_num": 32)");
  auto settled = settings("start");
  settled.timeout = kStart;
  const auto tier = connect_rados(settled);
  if (!tier.ok()) check_failed(__FILE__, __LINE__, tier.status().to_string());
}

CephCluster::~CephCluster() {
  if (admin_ != nullptr) library_.shutdown(admin_);
}

RadosSettings CephCluster::settings(const std::string& space) const {
  return {.ceph_conf = conf(), .user = user(), .pool = pool(), .space = space};
}

std::string CephCluster::new_key() {
  const Ran ran = run({kAuthtool, "--gen-print-key"});
  PRECIS_CHECK(ran.exit_code == 0);
  return ran.out.substr(0, ran.out.find('\n'));
}

void CephCluster::write_files() const {
  const std::size_t copies = std::min<std::size_t>(3, osds_.size());
  std::ofstream conf_file(conf());
  conf_file << "[global]\nfsid = " << new_uuid() << "\nmon_host = [v2:127.0.0.1:" << port_
            << "]\nkeyring = " << path("keyring") << "\nrun_dir = " << dir_.path()
            << "\nadmin_socket = " << path("$name.asok") << "\nlog_file = " << path("$name.log")
            << "\nmon_cluster_log_file = " << path("cluster.log") << "\ncrash_dir = " << dir_.path()
            << "\nosd_pool_default_size = " << copies
            << "\nosd_pool_default_min_size = " << (copies > 2 ? 2 : 1) << kSettings;
  // One key is enough: nobody but this test is to be kept out.
  const std::string key = "]\nkey = " + new_key() + "\ncaps mon = ";
  std::ofstream keyring(path("keyring"));
  keyring << "[mon." << key << "\"allow *\"\n"
          << "[client.admin" << key << "\"allow *\"\ncaps osd = \"allow *\"\n"
          << "[" << user() << key << "\"allow r\"\ncaps osd = \"allow rw pool=" << pool() << "\"\n";
  for (std::size_t osd = 0; osd < osds_.size(); ++osd) {
    keyring << "[osd." << osd << key << "\"allow profile osd\"\ncaps osd = \"allow *\"\n";
  }
  PRECIS_CHECK(conf_file.flush().good() && keyring.flush().good());
}

// Makes the empty stores of all processes.
void CephCluster::make_stores() const {
  const std::string map = path("monmap");
  complete(
      {kMonmap, "--conf", conf(), "--create", "--addv", "a", "[v2:127.0.0.1:" + port_ + "]", map});
  std::vector<std::unique_ptr<Process>> makers;
  for (std::size_t osd = 0; osd < osds_.size(); ++osd) {
    const std::string data = path("osd" + std::to_string(osd));
    std::filesystem::create_directory(data);
    auto make = osd_command(conf(), data, osd);
    make.insert(make.end(), {"--mkfs", "--osd-uuid", uuids_[osd], "--monmap", map});
    makers.push_back(start(make));
  }
  complete({kMonitor, "--conf", conf(), "--mkfs", "-i", "a", "--mon-data", path("mon"), "--monmap",
            map, "--keyring", path("keyring")});
  for (const auto& maker : makers) PRECIS_CHECK(maker->wait() == 0);
}

void CephCluster::connect() {
  library_ = rados::load_rados().value();
  await([this] {
    PRECIS_CHECK(library_.create2(&admin_, "ceph", "client.admin", 0) == 0);
    PRECIS_CHECK(library_.conf_read_file(admin_, conf().c_str()) == 0);
    library_.conf_set(admin_, "client_mount_timeout", "60");
    library_.conf_set(admin_, "rados_mon_op_timeout", "60");
    if (library_.connect(admin_) == 0) return true;
    library_.shutdown(std::exchange(admin_, nullptr));
    return false;
  });
}

std::string CephCluster::command(const std::string& command) const {
  const std::string text = "{" + command + R"(, "format": "json"})";
  const char* const texts[] = {text.c_str()};
  char *out = nullptr, *error = nullptr;
  std::size_t out_size = 0, error_size = 0;
  const int code = library_.mon_command(admin_, const_cast<const char**>(texts), 1, nullptr, 0,
                                        &out, &out_size, &error, &error_size);
  const std::string answer(out, out_size), why(error, error_size);
  library_.buffer_free(out);
  library_.buffer_free(error);
  if (code < 0) check_failed(__FILE__, __LINE__, text + ": " + why);
  return answer;
}

void CephCluster::kill_osd(std::size_t osd) { osds_[osd].reset(); }

void CephCluster::signal_osd(std::size_t osd, int number) { osds_[osd]->signal(number); }

void CephCluster::start_osd(std::size_t osd) {
  auto run = osd_command(conf(), path("osd" + std::to_string(osd)), osd);
  run.emplace_back("-f");
  osds_[osd] = start(run);
}

std::size_t CephCluster::osds_up() const {
  const auto stat = nlohmann::json::parse(command(R"("prefix": "osd stat")"));
  return stat.at("num_up_osds").get<std::size_t>();
}

void CephCluster::await_osds(std::size_t count) const {
  await([&] { return osds_up() == count; });
}

std::string CephCluster::conf_with(const std::string& lines) const {
  const std::string file_name = path("other-" + new_uuid() + ".conf");
  std::filesystem::copy_file(conf(), file_name);
  std::ofstream file(file_name, std::ios::app);
  file << lines;
  PRECIS_CHECK(file.flush().good());
  return file_name;
}

}  // namespace precis::testing
