// The environment of a measurement: its own precisd, and clients in this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/process.h"

namespace precis::bench {

// A new folder. The destructor removes it.
class Folder {
 public:
  explicit Folder(std::string path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

struct StageOptions {
  std::string folder;     // precisd's data: new, or left by another stage
  std::string transport;  // "shm" or "tcp"
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::size_t clients = 1;
  std::optional<unsigned> core = {};  // core that precisd runs on
  std::uint16_t admin_port = 0;       // 0: no admin port
};

class Stage {
 public:
  // Returns once precisd is ready and all clients are connected. kUnsupported: "shm" on a machine
  // that forbids copies between processes, or too little memory.
  static Result<std::unique_ptr<Stage>> open(const StageOptions& options, const ModelSpec& spec);

  Client& client(std::size_t i = 0) { return *clients_[i]; }
  const Model& model() const { return model_; }
  double cpu_seconds() const;  // of precisd, since its start
  // Runs body(i) for every client, each in its own thread, all at the same time. Returns the
  // seconds until the last one ends.
  Result<double> together(const std::function<Status(std::size_t i)>& body);
  // End precisd: kill() by SIGKILL, stop() by an orderly shutdown. The clients are unusable
  // afterwards.
  void kill();
  Status stop();

 private:
  std::unique_ptr<testing::Process> process_;
  std::vector<std::shared_ptr<Client>> clients_;
  Model model_;
};

// A precisd that has reported that it is ready, and its address. Nobody reads its later output.
struct Ready {
  std::unique_ptr<testing::Process> process;
  std::string address;
};
Result<Ready> start_precisd(const StageOptions& options);
// For a program that is interrupted: ends the process started last, and blocks the creation of
// further processes and Folders. Call it once, from any thread.
void end_precisd();

// kUnsupported if fewer than `bytes` of memory are available.
Status need_memory(std::uint64_t bytes);

double seconds_since(std::chrono::steady_clock::time_point began);

}  // namespace precis::bench
