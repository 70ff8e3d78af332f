// For programs that must notice other events while a call waits, such as Ctrl-C under Python, which
// handles signals only when it is asked to.
#pragma once

#include <functional>

namespace precis {

// Sets the process's callback. Each thread that waits in a call of a Client, a Put or a Prefix asks
// it at least every second, except while it connects, and never on the loop's thread. After the
// first true the call ends with kCanceled, once the service has released the caller's memory; the
// outcome of its request is unknown. Set it once, before the first call.
void on_wait(std::function<bool()> is_interrupted);

}  // namespace precis
