// The state that all threads of the simulation share: the machine, the service, the model of the
// stored paths, and the first broken promise.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulate/service_host.h"
#include "tests/simulate/stored_paths.h"
#include "tests/simulate/world.h"

namespace precis::simulate {

class Scene {
 protected:
  static constexpr std::uint32_t kPaths = 6;

  explicit Scene(const Plot& plot)
      : plot_(plot), machine_(plot.seed), kv_random_(static_cast<std::uint32_t>(plot.seed)) {
    model_.block_tokens = 16;
    // Segments have 20 to 90 tokens.
    if (machine_.chance(0.4)) model_.windows = {0, 60, 0, 40};
    for (std::uint32_t p = 0; p < kPaths; ++p) {
      paths_.push_back(make_path(machine_, kv_random_, model_));
      paths_.back().session = "session " + std::to_string(p);
    }
  }

  struct Span {  // of an operation: did anything else happen to the path meanwhile?
    std::uint64_t changes, crashes, power_losses;
  };
  template <typename... Args>
  void trace(fmt::format_string<Args...> text, Args&&... args) {
    if (!plot_.trace) return;
    const double now = std::chrono::duration<double>(machine_.now().time_since_epoch()).count();
    fmt::print("{:12.6f} {}\n", now, fmt::format(text, std::forward<Args>(args)...));
  }
  void breaks(const std::string& promise) {
    trace("BROKEN: {}", promise);
    if (broken_.ok()) broken_ = Status::internal(promise);
  }
  bool limited() const { return plot_.max_disk_bytes > 0; }
  // The number of segments from the root that are stored for certain. The service keeps what is
  // pinned, and may drop everything else if there is a limit.
  std::size_t sure_of(const Path& path) const {
    if (!limited()) return stored_of(path);
    return path.pinned == true && path.tip ? path.tip_segment + 1 : 0;
  }
  bool goes_on() const { return broken_.ok(); }
  Span span(const Path& path) const {
    return {path.changes, host_->crashes(), host_->power_losses()};
  }
  bool undisturbed(const Path& path, const Span& since) const {
    return !path.changing && path.changes == since.changes && host_->crashes() == since.crashes;
  }
  void pause(double seconds_max) {
    machine_.clock().sleep(std::chrono::nanoseconds(
        machine_.random(static_cast<std::uint64_t>(seconds_max * 1e9) + 1)));
  }
  // Counts an operation. Its error must be one that a client may see at any time.
  void note(const Status& status, const char* what) {
    ++operations_;
    if (status.ok()) return;
    ++failed_;
    trace("  {}: {}", what, status.to_string());
    switch (status.code()) {
      case StatusCode::kUnavailable:
      case StatusCode::kTimedOut:
      case StatusCode::kRejected:
      case StatusCode::kNotFound: return;
      case StatusCode::kOutOfSpace:
        if (plot_.faults || limited()) return;
        break;
      default: break;
    }
    breaks(fmt::format("{} failed: {}", what, status.to_string()));
  }

  bool begin_change(Path& path) {
    if (path.changing) return false;
    path.changing = true;
    ++path.changes;
    return true;
  }

  const Plot plot_;
  Simulation machine_;
  std::mt19937 kv_random_;
  ModelSpec model_ = testing::tiny_model(Dtype::kF16);
  std::vector<Path> paths_;
  std::unique_ptr<ServiceHost> host_;
  Status broken_;
  bool over_ = false;
  std::uint64_t operations_ = 0, failed_ = 0;
};

}  // namespace precis::simulate
