// The audit log of changes and refusals, one line of JSON for each. These keys are always present,
// with null if there is no value:
//   time (UTC), tenant, client, from, what, of, old, new, outcome, why
// `outcome` is "ok" or the name of a status code.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/audit_event.h"
#include "cachesvc/server/audit_limit.h"
#include "precis/status.h"

namespace precis {

// Without a line end. Values longer than limits::kAuditValueBytesMax are truncated.
std::string audit_line(const AuditWho& who, const AuditEvent& event, std::uint64_t unix_ms);

// Writes lines on its own thread, so that a slow disk does not delay requests. At most
// limits::kAuditLinesMax lines wait. A line past that, or one that cannot be written, is lost and
// counted (Metrics::audit_lost); later lines report the number of lost lines. Refusals are limited
// (audit_limit.h); refusals without a line are counted (Metrics::audit_suppressed).
class Audit {
 public:
  // The destination of the lines. The last copy closes the file.
  class Sink {
   public:
    // `path`: a regular file to append to, created with access for its owner only (0600); "stderr";
    // or empty, for no audit log. kInvalidArgument naming the path. May wait for the disk.
    static Result<Sink> open(const std::string& path);
    // Whether open() would succeed, as far as can be known without creating the file.
    static Status check(const std::string& path);

   private:
    friend class Audit;
    std::string path_;
    int fd_ = -1;
    std::shared_ptr<Descriptor> owned_;  // null for stderr
  };

  Audit(Log& log, Metrics& metrics, Runtime& runtime);
  ~Audit();  // writes all waiting lines, and the numbers of suppressed refusals

  // Lines go to `sink` from the next one on, and the previous sink is closed. This also ends the
  // use of a renamed file.
  void use(Sink sink);
  // Any thread; does not block.
  void write(const AuditWho& who, const AuditEvent& event);
  // Writes the numbers of suppressed refusals that are due. Call it every second.
  void tell_suppressed();

 private:
  void post(std::string line);
  void post_all(const std::vector<AuditLimit::Line>& lines);
  void write_out(const std::string& line);
  void tell_lost();
  bool append(std::string text);

  Log& log_;
  Metrics& metrics_;
  const Clock& clock_;
  std::atomic<bool> on_{false};
  std::atomic<std::size_t> waiting_{0};
  std::atomic<std::uint64_t> lost_{0};  // lost lines that are not yet reported
  std::mutex mutex_;                    // guards limit_
  AuditLimit limit_;
  // Used by the thread only.
  Sink sink_;
  bool torn_ = false;    // the last line is incomplete
  bool failed_ = false;  // the last write failed and is in the log
  std::unique_ptr<Executor> thread_;
};

}  // namespace precis
