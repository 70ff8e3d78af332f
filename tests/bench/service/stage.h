// What a measurement plays on: a precisd of its own with clients in this process.
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

// A new folder; removed when destroyed.
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
  std::string folder;     // of precisd's data, new or kept from another stage
  std::string transport;  // "shm" or "tcp"
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::size_t clients = 1;
  std::optional<unsigned> core = {};  // that precisd runs on
};

class Stage {
 public:
  // Ready and with its clients connected. kUnsupported: of "shm" where this machine forbids copies
  // between processes, and where it has not the memory.
  static Result<std::unique_ptr<Stage>> open(const StageOptions& options, const ModelSpec& spec);

  Client& client(std::size_t i = 0) { return *clients_[i]; }
  const Model& model() const { return model_; }
  double cpu_seconds() const;  // of precisd, since it began
  // Runs body(i) for every client in a thread of its own, all at once; seconds until the last one
  // is done.
  Result<double> together(const std::function<Status(std::size_t i)>& body);
  // Ends precisd by SIGKILL or in its own way. What was connected to it is of no more use.
  void kill();
  Status stop();

 private:
  std::unique_ptr<testing::Process> process_;
  std::vector<std::shared_ptr<Client>> clients_;
  Model model_;
};

// A precisd that has said that it is ready, and where; its output after that is nobody's.
struct Ready {
  std::unique_ptr<testing::Process> process;
  std::string address;
};
Result<Ready> start_precisd(const StageOptions& options);
// Ends the one started last, and lets no other and no Folder begin: for a program that is
// interrupted. Once, from any thread.
void end_precisd();

// kUnsupported if the machine has not `bytes` to spare.
Status need_memory(std::uint64_t bytes);

double seconds_since(std::chrono::steady_clock::time_point began);

}  // namespace precis::bench
