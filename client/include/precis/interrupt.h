// For programs that must notice other events while a call waits, such as Ctrl-C under Python:
// Python handles a signal only when its interpreter is called.
#pragma once

#include <functional>

namespace precis {

// Sets the process's callback. Each thread that waits in a call of a Client, a Put or a Prefix
// calls it at least every second, except while it connects; the loop's thread never calls it. When
// it has returned true, the waiting call ends with kCanceled as soon as the service has released
// the caller's memory; the outcome of its request is unknown. Set it once, before the first call.
void on_wait(std::function<bool()> is_interrupted);

}  // namespace precis
