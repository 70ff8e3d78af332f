// A progress bar on standard error, if that is a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace precis::cli {

class Progress {
 public:
  // `total`: the number of items or bytes, at least 1; `what` is shown before the bar.
  Progress(std::string what, std::uint64_t total);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `note` is shown after the bar.
  void show(std::uint64_t done, const std::string& note);

 private:
  const std::string what_;
  const std::uint64_t total_;
  const bool shown_;
};

}  // namespace precis::cli
