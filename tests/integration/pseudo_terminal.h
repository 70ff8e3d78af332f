// A program on a terminal of its own, as a person runs it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"

namespace precis::testing {

class TerminalProgram {
 public:
  TerminalProgram(const std::vector<std::string>& command, unsigned short columns,
                  unsigned short rows);
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(const std::string& keys) const;
  // Reads until the screen has shown `text`, or the program has ended, or nothing comes for a
  // minute. True if it was shown.
  bool shows(const std::string& text);
  // Reads to the end and waits; the exit code, or minus the signal that ended it.
  int wait();
  const std::string& shown() const { return shown_; }

 private:
  bool read_more();

  pid_t pid_ = -1;
  Descriptor terminal_;
  std::string shown_;
};

}  // namespace precis::testing
