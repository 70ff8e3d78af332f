// For programs that must notice more than the service while a call waits: Ctrl-C under Python,
// whose signals are seen only by who asks for them.
#pragma once

#include <functional>

namespace precis {

// Of the process. Asked some ten times a second by threads that wait in a call of a Client, a Put
// or a Prefix, outside all locks; within about a second of the first true the call ends with
// kCanceled, and what became of its request is unknown. Set it before the first call, and once.
void on_wait(std::function<bool()> is_interrupted);

}  // namespace precis
