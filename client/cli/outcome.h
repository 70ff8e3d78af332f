// The end of a precisctl command: its output, its error and its exit code.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis::cli {

inline constexpr char kExitCodes[] =
    "Exit codes: 0 done; 1 failed; 2 usage: the command line or a value in it is wrong; 3 not\n"
    "found; 4 the service cannot be reached, does not answer, or is no member of its cluster;\n"
    "5 the credentials do not suffice; 6 refused: stored objects prevent it, such as a segment's\n"
    "children or a pinned session; 7 the service is busy, try again; 130 stopped: by Ctrl-C, or\n"
    "by an answer other than yes.\n"
    "With --json, output and errors (on stderr) are JSON; its keys are stable.";

// Writes to stdout at once. kOutOfSpace if that fails: stdio would silently ignore an error at the
// end of the program.
Status write_output(const std::string& text);

int exit_code(const Status& status);

// The error of work that the service did in the background: `code` is the name of its status, which
// this build may not know.
Status failure(const std::string& code, const std::string& message);

// Prints `out` and the error; returns the exit code. A failed write to stdout is an error, so that
// a script does not take half of `out` for all of it.
int finish(Status status, const std::string& out, bool json);

}  // namespace precis::cli
