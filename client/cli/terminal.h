// The terminal, if there is one: its size, its keys, a full screen, Ctrl-C, and questions.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "precis/status.h"

namespace precis::cli {

// The columns of standard output; 0 if it is no terminal, so that a pipe gets whole lines.
// `wanted`: overrides the terminal's own number unless it is 0.
std::size_t output_columns(std::size_t wanted);
// The rows of standard output; 0 if it is no terminal or does not say.
std::size_t output_rows();

// Makes interrupted() false. The next SIGINT or SIGTERM then only sets it, so that a command can
// end in order; one after that ends the program.
void catch_interrupts();
bool interrupted();

// OK if the user answers yes, or if `yes` is true. kInvalidArgument if nobody can be asked because
// standard input is no terminal; kCanceled for any other answer.
Status confirm(const std::string& question, bool yes);
// The kInvalidArgument of confirm(), for a check before the work that precedes the question.
Status check_can_ask(bool yes);

// Shows one frame after the other. On a terminal, each replaces the one before, and the screen
// comes back at the end. Elsewhere they are printed one after the other.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // A terminal shows both output and input: frames replace each other, and keys are read.
  bool is_live() const { return live_; }
  // Lines past the last row of a terminal are left out. kOutOfSpace if it cannot be written.
  Status show(const std::string& frame) const;
  // Waits. False, at once, if the user ends it: by q, Ctrl-C or SIGTERM.
  bool wait(std::chrono::milliseconds time) const;

 private:
  bool live_ = false;
  termios before_{};
};

}  // namespace precis::cli
