// A network between two programs that a test can disturb: TCP connections that it passes on. Bytes
// of one direction or both can be held back, as in a partition, or delayed. They are not lost,
// because TCP would send them again: when the partition ends, they arrive late, or the connection
// breaks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace precis::torture {

class Relay {
 public:
  // "There" is from the side that connects; "back" is to it.
  enum class Way : std::uint8_t { kThere, kBack, kBoth };

  Relay();
  // Breaks all connections.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Passes connections to `at`, "127.0.0.1:7470", on to `to`. Port 0: any free one. Returns the
  // address with its port. An address that is in use ends the test run.
  std::string listen(const std::string& at, const std::string& to);
  // From now on, nothing passes this way. Opening a connection needs the way kThere.
  void hold(Way way);
  // Each piece of bytes, of at most 64 KiB, takes so long each way.
  void delay(std::chrono::milliseconds time);
  // Everything passes again. The bytes that were held back arrive now, or, with `broken`, all
  // connections break instead.
  void heal(bool broken);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::torture
