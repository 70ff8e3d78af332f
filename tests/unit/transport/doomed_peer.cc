// A client that its test kills: transport_doomed_peer ADDRESS own|transports CA. Connects, exposes
// 256 MiB of the byte 0x42 in its own or the transport's memory, describes the region to the server
// in its first message, and runs until it is killed.
#include <sys/mman.h>

#include <cstring>

#include "cachesvc/base/asio_loop.h"
#include "client/src/transport/socket_client.h"
#include "tests/unit/transport/doomed_region.h"

int main(int argc, char** argv) {
  using namespace precis;
  if (argc != 4) return 2;
  AsioLoop loop;
  SocketClientOptions options;
  if (argv[3][0] != '\0') options.tls = TlsContext::for_client({"", "", argv[3]}).value();
  const auto transport = make_socket_client(loop, options);
  Result<std::unique_ptr<Registration>> registration = Status::internal("not yet");
  if (std::strcmp(argv[2], "transports") == 0) {
    registration = transport->allocate_memory(test::kDoomedBytes);
  } else {
    void* memory = mmap(nullptr, test::kDoomedBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 4;
    registration =
        transport->register_memory({static_cast<std::byte*>(memory), test::kDoomedBytes});
  }
  if (!registration.ok()) return 5;
  std::memset((*registration)->bytes().data(), 0x42, test::kDoomedBytes);

  std::unique_ptr<ClientConnection> connection;
  std::unique_ptr<Exposure> exposure;
  loop.post([&] {
    transport->connect(argv[1], {}, 10'000, [&](Result<ClientTransport::Connected> connected) {
      if (!connected.ok()) return loop.stop();
      connection = std::move(connected->connection);
      connection->start({.on_message = [](std::vector<std::byte>) {},
                         .on_closed = [&](const Status&) { loop.stop(); }});
      exposure = connection->expose(**registration, (*registration)->bytes()).value();
      connection->send(test::encode_doomed_region(exposure->region()));
    });
  });
  loop.run();
  exposure.reset();
  connection.reset();
  return 0;
}
