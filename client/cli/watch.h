// --watch: shows a command's output again and again.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "precis/status.h"

namespace precis::cli {

// "2", "0.5", "2s" or "500ms": from 0.1 s to an hour. kInvalidArgument names `option`.
Result<std::chrono::milliseconds> parse_interval(const std::string& text,
                                                 const std::string& option);

// Shows what `frame` writes into its argument every `interval`, on a Screen, until the user ends
// it. If the first frame fails, its error is the outcome. On a terminal, the error of a later one
// is shown in its place, because a service that restarts comes back; elsewhere it ends the watch.
Status watch(std::chrono::milliseconds interval, const std::function<Status(std::string&)>& frame);
// How many lines of a frame watch() shows; 0: any number, because standard output is no terminal.
std::size_t frame_lines();

}  // namespace precis::cli
