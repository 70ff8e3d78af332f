// For programs that run something on this machine until SIGTERM or SIGINT, and write to a file how
// to use it.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>

namespace precis::testing {

// Make it before any thread, so that all of them leave the signals to await().
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }
  void await() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_{};
};

// The file appears at once, with all that `write` writes, and is there until the program is ended.
inline void show_until_ended(const EndSignals& signals, const std::filesystem::path& file,
                             const std::function<void(const std::filesystem::path&)>& write) {
  const std::filesystem::path unfinished = file.string() + ".new";
  write(unfinished);
  std::filesystem::rename(unfinished, file);
  signals.await();
  std::filesystem::remove(file);
}

}  // namespace precis::testing
