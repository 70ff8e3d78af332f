// The audit log: who changed what, and who was refused what. A line of JSON each, with the keys
//   time (UTC), tenant, client, from, what, of, old, new, outcome, why
// always there; null where there is nothing to say. `outcome` is "ok" or a status code's name.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/descriptor.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/server/audit_event.h"
#include "cachesvc/server/audit_limit.h"
#include "precis/status.h"

namespace precis {

// Without a line's end; values past limits::kAuditValueBytesMax are cut.
std::string audit_line(const AuditWho& who, const AuditEvent& event, std::uint64_t unix_ms);

// Writes lines on a thread of its own, so that no disk holds up who acts. limits::kAuditLinesMax
// may wait; what is past that, or can't be written, is lost and counted (Metrics::audit_lost), and
// a line says how many were once lines can be written again. Refusals are bounded (audit_limit.h);
// what has no line of its own is counted (Metrics::audit_suppressed).
class Audit {
 public:
  // The file that lines go to; closed with the last copy.
  class Sink {
   public:
    // `path`: a regular file, appended to, made for its owner alone (0600); "stderr"; or empty, for
    // no audit log. kInvalidArgument naming the path. May wait for the disk.
    static Result<Sink> open(const std::string& path);
    // Whether open() would succeed, as far as can be said without making the file.
    static Status check(const std::string& path);

   private:
    friend class Audit;
    std::string path_;
    int fd_ = -1;
    std::shared_ptr<Descriptor> owned_;  // none of stderr
  };

  Audit(Log& log, Metrics& metrics, const Clock& clock = machine_clock());
  ~Audit();  // once every line that waits is written, and how many have none

  // From the next line on; the sink before is closed. Also how a file that was renamed is left.
  void use(Sink sink);
  // Any thread; does not block.
  void write(const AuditWho& who, const AuditEvent& event);
  // Writes how many refusals had no line of their own, once it is time; to be called every second.
  void tell_suppressed();

 private:
  static const Clock& machine_clock();
  void post(std::string line);
  void post_all(const std::vector<AuditLimit::Line>& lines);
  void write_out(const std::string& line);
  void tell_lost();
  bool append(std::string text);

  Log& log_;
  Metrics& metrics_;
  std::atomic<bool> on_{false};
  std::atomic<std::size_t> waiting_{0};
  std::atomic<std::uint64_t> lost_{0};  // and not yet told
  std::mutex mutex_;                    // of the next
  AuditLimit limit_;
  // Used by the thread alone.
  Sink sink_;
  bool torn_ = false;    // the last line has no end
  bool failed_ = false;  // the last write did, and the log says so
  Executor thread_{"audit", 1};
};

}  // namespace precis
