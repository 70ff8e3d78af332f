// A request to the admin port of a precisd.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "cachesvc/base/descriptor.h"

namespace precis::testing {

struct HttpAnswer {
  int status = 0;  // 0: there was no answer
  std::string body;
};

// `port`: of the loopback. `json`: the body; empty: none.
inline HttpAnswer http_call(const std::string& port, const std::string& method,
                            const std::string& target, const std::string& json = "",
                            const std::string& token = "") {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(port)));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1:" + port +
                        "\r\nConnection: close\r\nContent-Length: " + std::to_string(json.size()) +
                        "\r\n";
  if (!json.empty()) request += "Content-Type: application/json\r\n";
  if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
  request += "\r\n" + json;
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string answer;
  std::array<char, 4096> some{};
  for (ssize_t size = 0; (size = ::recv(socket.get(), some.data(), some.size(), 0)) > 0;) {
    answer.append(some.data(), static_cast<std::size_t>(size));
  }
  const auto status = answer.find(' '), body = answer.find("\r\n\r\n");
  if (status == std::string::npos || body == std::string::npos) return {};
  return {std::stoi(answer.substr(status + 1)), answer.substr(body + 4)};
}

}  // namespace precis::testing
