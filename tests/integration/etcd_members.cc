#include "tests/integration/etcd_members.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "cachesvc/cluster/etcd.h"
#include "cachesvc/net/http_post.h"
#include "tests/integration/free_port.h"

namespace precis::testing {
namespace {

constexpr char kEtcd[] = "/usr/bin/etcd";  // of the Debian package etcd-server
constexpr std::chrono::seconds kStart{60};
constexpr HttpPost::Limits kLimits = {
    .time = std::chrono::seconds(1), .last_time = std::chrono::seconds(1), .answer_bytes = 65536};

}  // namespace

bool EtcdMembers::installed() { return std::filesystem::exists(kEtcd); }

EtcdMembers::EtcdMembers(std::size_t count, std::optional<TlsFiles> tls)
    : tls_(std::move(tls)), processes_(count) {
  for (std::size_t member = 0; member < count; ++member) {
    ports_.push_back(free_port());
    peer_ports_.push_back(free_port());
  }
  for (std::size_t member = 0; member < count; ++member) start(member);
  await_answer();
}

void EtcdMembers::start(std::size_t member) {
  std::string all;
  for (std::size_t m = 0; m < ports_.size(); ++m) {
    all += (m == 0 ? "" : ",") + ("m" + std::to_string(m)) + "=http://127.0.0.1:" + peer_ports_[m];
  }
  const std::string name = "m" + std::to_string(member);
  const std::string peer = "http://127.0.0.1:" + peer_ports_[member];
  std::vector<std::string> command{kEtcd};
  const auto add = [&](const std::string& flag, const std::string& value) {
    command.insert(command.end(), {"--" + flag, value});
  };
  add("name", name);
  add("data-dir", dir_.path(name));
  add("listen-client-urls", url(member));
  add("advertise-client-urls", url(member));
  add("listen-peer-urls", peer);
  add("initial-advertise-peer-urls", peer);
  add("initial-cluster", all);
  add("logger", "zap");
  add("log-outputs", dir_.path(name + ".log"));
  command.emplace_back("--unsafe-no-fsync");
  if (tls_) {
    add("cert-file", tls_->cert);
    add("key-file", tls_->key);
    add("trusted-ca-file", tls_->ca);
    command.emplace_back("--client-cert-auth");
  }
  processes_[member] = std::make_unique<Process>(command);
}

void EtcdMembers::await_answer() const {
  std::shared_ptr<TlsContext> tls;
  if (tls_) tls = TlsContext::for_client(*tls_).value();
  cluster::Etcd etcd(cluster::parse_etcd_urls(urls()).value(), tls);
  const auto until = std::chrono::steady_clock::now() + kStart;
  while (!etcd.read("any/").ok()) {
    PRECIS_CHECK(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string EtcdMembers::url(std::size_t member) const {
  return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + ports_[member];
}

std::string EtcdMembers::urls() const {
  std::string urls;
  for (std::size_t member = 0; member < ports_.size(); ++member) {
    urls += (member == 0 ? "" : ",") + url(member);
  }
  return urls;
}

void EtcdMembers::kill(std::size_t member) { processes_[member].reset(); }

void EtcdMembers::save(std::size_t member) const {
  const std::string data = dir_.path("m" + std::to_string(member));
  std::filesystem::copy(data, data + ".saved", std::filesystem::copy_options::recursive);
}

void EtcdMembers::restore(std::size_t member) const {
  const std::string data = dir_.path("m" + std::to_string(member));
  std::filesystem::remove_all(data);
  std::filesystem::copy(data + ".saved", data, std::filesystem::copy_options::recursive);
}

void EtcdMembers::pause(std::size_t member, std::chrono::milliseconds time) const {
  processes_[member]->signal(SIGSTOP);
  std::this_thread::sleep_for(time);
  processes_[member]->signal(SIGCONT);
}

std::size_t EtcdMembers::leader() const {
  HttpPost post;
  for (std::size_t member = 0; member < ports_.size(); ++member) {
    auto to = parse_http_endpoint(url(member)).value();
    to.target = "/v3/maintenance/status";
    const auto answer = post.post(to, "{}", kLimits);
    if (!answer.ok()) continue;
    const auto json = nlohmann::json::parse(answer->body);
    if (json.at("leader") == json.at("header").at("member_id")) return member;
  }
  PRECIS_CHECK(!"etcd has no leader");
}

}  // namespace precis::testing
