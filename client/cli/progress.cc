#include "client/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace precis::cli {

Progress::Progress(std::string what, std::uint64_t total)
    : what_(std::move(what)), total_(std::max<std::uint64_t>(total, 1)), shown_(isatty(2) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::show(std::uint64_t done, const std::string& note) {
  constexpr std::uint64_t kWidth = 30;
  if (!shown_) return;
  const auto filled = static_cast<std::size_t>(std::min(done, total_) * kWidth / total_);
  // Not fmt::print, which throws if the terminal is gone.
  std::fputs(
      fmt::format("\r\033[K{} [{}{}] {}%  {}", what_, std::string(filled, '#'),
                  std::string(kWidth - filled, ' '), std::min(done, total_) * 100 / total_, note)
          .c_str(),
      stderr);
  std::fflush(stderr);
}

}  // namespace precis::cli
