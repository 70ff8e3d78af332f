#include "tests/integration/pseudo_terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "precis/status.h"

namespace precis::testing {

TerminalProgram::TerminalProgram(const std::vector<std::string>& command, unsigned short columns,
                                 unsigned short rows) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const winsize size{rows, columns, 0, 0};
  int terminal = -1;
  pid_ = ::forkpty(&terminal, nullptr, nullptr, &size);
  PRECIS_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::unsetenv("COLUMNS");
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  terminal_ = Descriptor(terminal);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void TerminalProgram::type(const std::string& keys) const {
  PRECIS_CHECK(::write(terminal_.get(), keys.data(), keys.size()) ==
               static_cast<ssize_t>(keys.size()));
}

bool TerminalProgram::read_more() {
  constexpr int kMinute = 60'000;
  pollfd output{terminal_.get(), POLLIN, 0};
  if (::poll(&output, 1, kMinute) <= 0) return false;
  char chunk[4096];
  const ssize_t size = ::read(terminal_.get(), chunk, sizeof chunk);
  if (size <= 0) return false;  // Linux reports the end as EIO
  shown_.append(chunk, static_cast<std::size_t>(size));
  return true;
}

bool TerminalProgram::shows(const std::string& text) {
  while (shown_.find(text) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

int TerminalProgram::wait() {
  while (read_more()) {
  }
  int status = 0;
  PRECIS_CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace precis::testing
