// Child processes of the tests.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace precis::testing {

// A program with its standard output on a pipe. The destructor kills it. A program that cannot be
// started means a broken build, and ends the test run.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line of its output, without its end; empty once it has ended.
  std::optional<std::string> read_line();
  void signal(int number);
  pid_t pid() const { return pid_; }
  // Waits; its exit code, or minus the signal that ended it.
  int wait();
  // The same if it has already ended; wait() is not needed then.
  std::optional<int> ended();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string buffered_;
};

struct Ran {
  int exit_code = 0;
  std::string out, err;
};
// Runs `command` to its end.
Ran run(const std::vector<std::string>& command);

}  // namespace precis::testing
