// For programs that must notice more than the service while a call waits: Ctrl-C under Python,
// whose signals are seen only by who asks for them.
#pragma once

#include <functional>

namespace precis {

// Of the process. Asked by each thread that waits in a call of a Client, a Put or a Prefix, every
// second at least but not while it connects, off the loop. After the first true the call ends with
// kCanceled, once the service has let go of the memory it was given, and what became of its request
// is unknown. Set it before the first call, and once.
void on_wait(std::function<bool()> is_interrupted);

}  // namespace precis
