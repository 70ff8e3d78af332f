#include "tests/bench/service/admin_load.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>
#include <utility>

namespace precis::bench {
namespace {

// Monitoring and the page ask for these in turn, so `/metrics` is a quarter of the requests.
constexpr std::array kPaths = {"/metrics", "/api/v1/status", "/api/v1/prefixes?limit=100",
                               "/api/v1/models"};

sockaddr_in local(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

std::uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = local(0);
  socklen_t size = sizeof address;
  PRECIS_CHECK(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  PRECIS_CHECK(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

Result<std::unique_ptr<AdminLoad>> AdminLoad::open(std::uint16_t port, unsigned per_second) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = local(port);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return Status::unavailable("the admin port does not answer");
  }
  return std::unique_ptr<AdminLoad>(new AdminLoad(std::move(socket), per_second));
}

AdminLoad::AdminLoad(Descriptor socket, unsigned per_second)
    : socket_(std::move(socket)), thread_([this, per_second] { send_all(per_second); }) {}

AdminLoad::~AdminLoad() {
  ended_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

Status AdminLoad::status() const {
  return failed_ ? Status::unavailable("the admin port has refused a request") : Status();
}

void AdminLoad::send_all(unsigned per_second) {
  const auto period = std::chrono::nanoseconds(std::chrono::seconds(1)) / per_second;
  auto next = std::chrono::steady_clock::now();
  for (std::size_t number = 0; !ended_ && !failed_; next += period) {
    std::this_thread::sleep_until(next);
    if (!on_) continue;
    if (ask(kPaths[number++ % kPaths.size()])) {
      ++answered_;
    } else if (!ended_) {
      failed_ = true;
    }
  }
}

// Sends one request and reads its answer whole.
bool AdminLoad::ask(const std::string& path) {
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return false;
  }
  constexpr std::string_view kLength = "Content-Length: ", kEnd = "\r\n\r\n";
  std::string answer;
  for (std::array<char, 65536> part;;) {
    const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), 0);
    if (got <= 0) return false;
    answer.append(part.data(), static_cast<std::size_t>(got));
    const auto end = answer.find(kEnd), length = answer.find(kLength);
    if (end == std::string::npos) continue;
    if (!answer.starts_with("HTTP/1.1 200") || length > end) return false;
    std::size_t body = 0;
    std::from_chars(answer.data() + length + kLength.size(), answer.data() + end, body);
    if (answer.size() >= end + kEnd.size() + body) return true;
  }
}

}  // namespace precis::bench
