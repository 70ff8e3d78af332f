#include "client/cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "client/cli/outcome.h"

namespace precis::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0;

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

constexpr char kOpenScreen[] = "\033[?1049h\033[?25l", kCloseScreen[] = "\033[?25h\033[?1049l";

}  // namespace

std::size_t output_rows() { return isatty(STDOUT_FILENO) == 1 ? terminal_size().ws_row : 0; }

std::size_t output_columns(std::size_t wanted) {
  if (isatty(STDOUT_FILENO) != 1) return 0;
  return wanted > 0 ? wanted : terminal_size().ws_col;
}

void catch_interrupts() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupts = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // waits are interrupted: no SA_RESTART
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return interrupts != 0; }

Status check_can_ask(bool yes) {
  if (yes || isatty(STDIN_FILENO) == 1) return {};
  return Status::invalid(
      "this needs a confirmation, and standard input is no terminal: give --yes");
}

Status confirm(const std::string& question, bool yes) {
  if (yes) return {};
  PRECIS_TRY(check_can_ask(yes));
  std::fputs((question + " [y/N] ").c_str(), stderr);
  std::fflush(stderr);
  char answer[64] = {};
  const ssize_t size = ::read(STDIN_FILENO, answer, sizeof answer - 1);
  const std::string text(answer, static_cast<std::size_t>(size > 0 ? size : 0));
  if (text == "y\n" || text == "Y\n" || text == "yes\n") return {};
  return Status::canceled("nothing was changed: the answer was not yes");
}

Screen::Screen()
    : live_(isatty(STDOUT_FILENO) == 1 && isatty(STDIN_FILENO) == 1 &&
            ::tcgetattr(STDIN_FILENO, &before_) == 0) {
  catch_interrupts();
  if (!live_) return;
  termios keys = before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  std::fputs(kOpenScreen, stdout);
}

Screen::~Screen() {
  if (!live_) return;
  std::fputs(kCloseScreen, stdout);
  std::fflush(stdout);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Status Screen::show(const std::string& frame) const {
  if (!live_) return write_output(frame);
  std::string text = "\033[H\033[J";
  const std::size_t rows = terminal_size().ws_row;
  std::size_t begin = 0;
  for (std::size_t row = 1; begin < frame.size() && (rows == 0 || row < rows); ++row) {
    const std::size_t end = frame.find('\n', begin);
    text.append(frame, begin, end == frame.npos ? frame.npos : end + 1 - begin);
    begin = end == frame.npos ? frame.size() : end + 1;
  }
  return write_output(text);
}

bool Screen::wait(std::chrono::milliseconds time) const {
  const auto end = std::chrono::steady_clock::now() + time;
  for (auto now = std::chrono::steady_clock::now(); now < end && !interrupted();
       now = std::chrono::steady_clock::now()) {
    pollfd key{STDIN_FILENO, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now);
    const int ready = ::poll(&key, live_ ? 1 : 0, static_cast<int>(left.count()));
    if (ready <= 0) continue;
    char pressed = 0;
    if (::read(STDIN_FILENO, &pressed, 1) <= 0 || pressed == 'q' || pressed == 'Q') return false;
  }
  return !interrupted();
}

}  // namespace precis::cli
