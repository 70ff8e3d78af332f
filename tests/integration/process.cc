#include "tests/integration/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "precis/status.h"

namespace precis::testing {
namespace {

// Starts `command` with the write ends of `out` and, if given, `err` as its output. It gets no
// other descriptors, because a socket that is closed here would stay open there.
pid_t spawn(const std::vector<std::string>& command, int out, int err) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  if (err >= 0) posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  PRECIS_CHECK(error == 0);
  return pid;
}

std::pair<int, int> make_pipe() {
  int ends[2];
  PRECIS_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

int reap(pid_t pid) {
  int status = 0;
  PRECIS_CHECK(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

Process::Process(const std::vector<std::string>& command) {
  const auto [read_end, write_end] = make_pipe();
  pid_ = spawn(command, write_end, -1);
  ::close(write_end);
  output_ = read_end;
}

Process::~Process() {
  if (pid_ > 0) {
    signal(SIGKILL);
    wait();
  }
  ::close(output_);
}

std::optional<std::string> Process::read_line() {
  for (;;) {
    const std::size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    char chunk[4096];
    const ssize_t n = ::read(output_, chunk, sizeof chunk);
    if (n <= 0) return {};
    buffered_.append(chunk, static_cast<std::size_t>(n));
  }
}

void Process::signal(int number) {
  PRECIS_CHECK(pid_ > 0);  // otherwise other processes would get the signal
  PRECIS_CHECK(::kill(pid_, number) == 0);
}

int Process::wait() { return reap(std::exchange(pid_, -1)); }

std::optional<int> Process::ended() {
  int status = 0;
  if (pid_ < 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return {};
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Ran run(const std::vector<std::string>& command) {
  const auto [out_read, out_write] = make_pipe();
  const auto [err_read, err_write] = make_pipe();
  const pid_t pid = spawn(command, out_write, err_write);
  ::close(out_write);
  ::close(err_write);
  Ran ran;
  pollfd ends[2] = {{out_read, POLLIN, 0}, {err_read, POLLIN, 0}};
  std::string* texts[2] = {&ran.out, &ran.err};
  for (int open = 2; open > 0;) {
    PRECIS_CHECK(::poll(ends, 2, -1) > 0);
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char chunk[4096];
      const ssize_t n = ::read(ends[i].fd, chunk, sizeof chunk);
      if (n > 0) {
        texts[i]->append(chunk, static_cast<std::size_t>(n));
      } else {
        ::close(std::exchange(ends[i].fd, -1));
        --open;
      }
    }
  }
  ran.exit_code = reap(pid);
  return ran;
}

}  // namespace precis::testing
