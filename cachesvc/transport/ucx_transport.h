// The transport between processes and machines, over UCX (DESIGN section 6).
//
// `listen` opens a TCP port for the preface only (preface.h): both sides check each other there and
// exchange UCX worker addresses and greetings. What follows runs over UCX: control messages, and
// bulk bytes by the best means the two sides share. The TCP connection stays open as the sign of
// life: when a process dies, its kernel closes it, and the link fails here whatever UCX has
// noticed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/transport.h"

namespace precis {

struct UcxOptions {
  // What UCX may use: empty for the best there is, or a list as UCX_TLS takes it, e.g. "tcp" or
  // "rc,tcp". A list is all that is used: within one host, too, bytes go over it.
  std::string transports;
  // Where it will listen or connect, if that is known: at a loopback address nothing is opened to
  // other machines. Else UCX takes one TCP port of the system's choice on every network device.
  std::string address;

  // How bulk bytes move. kAuto takes, per connection, the best that both sides have: the kernel's
  // copy between two processes of one host (host_copy.h), one-sided operations where the network's
  // hardware does them, the preface's own connection where UCX has TCP alone (bulk_stream.h), else
  // active messages. The others leave no choice, where they are possible.
  enum class BulkMode { kAuto, kOneSided, kHostCopy, kStream, kMessages };
  BulkMode bulk = BulkMode::kAuto;
  unsigned copy_threads = 2;  // for kHostCopy, and for what a server's kStream sends

  // Bytes of messages that have arrived, or are arriving, and were not handed out, over all
  // connections: past it the one that has most of them is closed.
  std::size_t inbox_bytes_max = SIZE_MAX;

  // How long the loop polls UCX after the last work before it blocks, where polling has paid
  // lately. As long as a peer on another core takes for its answer or its next request.
  std::chrono::nanoseconds spin{50'000};
  // How long a peer may take over its preface.
  std::chrono::milliseconds preface_timeout{5'000};
};

// kUnavailable if UCX cannot start, kInvalidArgument if it does not know one of options.transports,
// kUnsupported if the machine has none of them.
// A client's is for one service, under one name: it makes one attempt to connect at a time, and one
// that failed may hold up the next until the transport's other connections are over.
// Destroy it on the loop's thread, or when the loop is not running; before the loop.
Result<std::unique_ptr<Transport>> make_ucx_transport(EventLoop& loop, const UcxOptions& options);

}  // namespace precis
