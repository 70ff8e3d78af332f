// The timers and watches of an event loop. Private to this folder; users call EventLoop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "cachesvc/base/event_loop.h"

namespace precis {

// As EventLoop::after().
std::unique_ptr<EventLoop::Timer> start_timer(EventLoop& loop, std::chrono::nanoseconds delay,
                                              std::function<void()> fn);
// As EventLoop::watch_socket().
std::unique_ptr<EventLoop::SocketWatch> watch_descriptor(EventLoop& loop, int fd,
                                                         std::function<void()> readable,
                                                         std::function<void()> writable);

}  // namespace precis
