// The end of a precisctl command: its output, its error and its exit code.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis::cli {

inline constexpr char kExitCodes[] =
    "Exit codes: 0 done; 1 failed; 2 usage: the command line or a value in it is wrong; 3 not\n"
    "found; 4 the service cannot be reached or does not answer; 5 the credentials do not suffice.\n"
    "With --json, output and errors (on stderr) are JSON; its keys are stable.";

// Prints `out` and the error; returns the exit code. A failed write to stdout is an error, so that
// a script does not take half of `out` for all of it.
int finish(Status status, const std::string& out, bool json);

}  // namespace precis::cli
