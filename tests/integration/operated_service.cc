#include "tests/integration/operated_service.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace precis::testing {
namespace {

int listening_at(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  PRECIS_CHECK(path.size() < sizeof address.sun_path);
  std::copy(path.begin(), path.end(), address.sun_path);
  PRECIS_CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const timeval minute{60, 0};
  PRECIS_CHECK(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute) == 0);
  return socket;
}

}  // namespace

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

OperatedService::OperatedService(const TempDir& dir, const std::string& config,
                                 const std::vector<std::string>& flags)
    : dir_(dir), systemd_(listening_at(dir.path("notify"))) {
  write_config(config);
  std::vector<std::string> command{"/bin/sh",
                                   "-c",
                                   "NOTIFY_SOCKET=\"$0\"; export NOTIFY_SOCKET; log=\"$1\"; shift; "
                                   "exec \"$@\" 2>>\"$log\"",
                                   dir.path("notify"),
                                   dir.path("log"),
                                   PRECISD_PATH};
  const auto unless_given = [&](const char* flag, const std::string& value) {
    if (std::ranges::find(flags, flag) != flags.end()) return;
    command.insert(command.end(), {flag, value});
  };
  unless_given("--config", dir.path("precisd.toml"));
  unless_given("--listen", "127.0.0.1:0");
  command.insert(command.end(), {"--memory", "256MiB", "--data", dir.path("data")});
  command.insert(command.end(), flags.begin(), flags.end());
  process_.emplace(command);
  const auto line = process_->read_line();
  if (!line) std::fprintf(stderr, "%s\n", log().c_str());
  PRECIS_CHECK(line.has_value());
  address_ = line->substr(line->find('=') + 1);
  PRECIS_CHECK(told() == "READY=1");  // it comes after the line
}

void OperatedService::write_config(const std::string& config) const {
  std::ofstream(dir_.path("precisd.toml")) << config;
}

std::vector<std::string> OperatedService::reload() {
  process_->signal(SIGHUP);
  std::vector<std::string> all;
  do {
    all.push_back(told());
  } while (!all.back().empty() && all.back() != "READY=1");
  return all;
}

std::vector<std::string> OperatedService::stop() {
  process_->signal(SIGTERM);
  PRECIS_CHECK(process_->wait() == 0);
  std::vector<std::string> all;
  char text[256];
  for (ssize_t size; (size = ::recv(systemd_.get(), text, sizeof text, MSG_DONTWAIT)) > 0;) {
    all.emplace_back(text, static_cast<std::size_t>(size));
  }
  return all;
}

std::string OperatedService::told() {
  char text[256];
  const ssize_t size = ::recv(systemd_.get(), text, sizeof text, 0);
  return size <= 0 ? "" : std::string(text, static_cast<std::size_t>(size));
}

std::string OperatedService::printed() {
  std::string text;
  while (const auto line = process_->read_line()) text += *line + "\n";
  return text;
}

Ran OperatedService::ctl(std::vector<std::string> words) const {
  words.insert(words.begin(), {PRECISCTL_PATH, "--address", address_});
  return run(words);
}

}  // namespace precis::testing
