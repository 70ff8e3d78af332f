#include "tests/integration/s3_server.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cachesvc/shared/s3_tier.h"
#include "tests/integration/free_port.h"
#include "tests/integration/s3_keys_file.h"

namespace precis::testing {
namespace {

constexpr char kSetpriv[] = "/usr/bin/setpriv";
constexpr char kBucket[] = "precis-test";
constexpr std::chrono::seconds kStart{60};

constexpr char kUsers[] = R"({"identities": [
  {"name": "precis", "credentials": [{"accessKey": "precis", "secretKey": "precis-secret"}],
   "actions": ["Admin", "Read", "Write", "List", "Tagging"]},
  {"name": "reader", "credentials": [{"accessKey": "reader", "secretKey": "reader-secret"}],
   "actions": ["Read", "List"]}]})";

}  // namespace

bool S3Server::available() {
  return std::filesystem::exists(WEED_PATH) && std::filesystem::exists(kSetpriv);
}

S3Server::S3Server(std::optional<TlsFiles> tls) : tls_(std::move(tls)), port_(free_port()) {
  std::filesystem::create_directory(path("data"));
  std::ofstream(path("users.json")) << kUsers;
  start();
}

void S3Server::start() {
  std::vector<std::string> command{kSetpriv, "--pdeathsig", "KILL", "--"};
  command.insert(command.end(), {"/bin/sh", "-c", R"(exec "$@" >>"$0" 2>&1)", path("log")});
  // SeaweedFS must not report over the network that it runs.
  command.insert(command.end(), {WEED_PATH, "server", "-master.telemetry=false", "-filer", "-s3"});
  const auto add = [&](const std::string& flag, const std::string& value) {
    command.push_back("-" + flag + "=" + value);
  };
  add("ip", "127.0.0.1");
  add("ip.bind", "127.0.0.1");
  add("dir", path("data"));
  add("volume.max", "50");
  add("master.volumeSizeLimitMB", "64");
  for (const std::string part : {"master", "volume", "filer", "s3"}) {
    const bool is_http = part == "s3" && !tls_;
    add(part + ".port", is_http ? port_ : free_port());
    add(part + ".port.grpc", free_port());
  }
  add("s3.port.iceberg", "0");
  add("s3.port.lance", "0");
  add("s3.config", path("users.json"));
  add("s3.localSocket", path("s3.sock"));
  add("filer.localSocket", path("filer.sock"));
  if (tls_) {
    add("s3.port.https", port_);
    add("s3.cert.file", tls_->cert);
    add("s3.key.file", tls_->key);
  }
  process_ = std::make_unique<Process>(command);
  await_answer();
}

// A first write makes the bucket.
void S3Server::await_answer() const {
  const auto store = make_s3_store(settings("start"));
  if (!store.ok()) check_failed(__FILE__, __LINE__, store.status().to_string());
  const auto until = std::chrono::steady_clock::now() + kStart;
  for (;;) {
    const Status written = (*store)->put("ready", {});
    if (written.ok()) return;
    if (std::chrono::steady_clock::now() > until) {
      check_failed(__FILE__, __LINE__, written.to_string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string S3Server::url_at(const std::string& address) const {
  return (tls_ ? "https://" : "http://") + address + "/" + kBucket;
}

std::string S3Server::keys_file(const std::string& id, const std::string& secret) const {
  return s3_keys_file(dir_.path(), id, secret);
}

std::string S3Server::keys_of_reader() const { return keys_file("reader", "reader-secret"); }

S3Settings S3Server::settings(const std::string& space) const {
  S3Settings settings;
  settings.url = url();
  settings.keys_file = keys_file("precis", "precis-secret");
  settings.space = space;
  if (tls_) settings.ca = tls_->ca;
  return settings;
}

std::string S3Server::node_settings(const std::string& at) const {
  return "cluster_s3 = '" + url_at(at) + "'\ncluster_s3_keys = '" +
         keys_file("precis", "precis-secret") + "'\n";
}

void S3Server::kill() { process_.reset(); }

void S3Server::signal(int number) { process_->signal(number); }

}  // namespace precis::testing
