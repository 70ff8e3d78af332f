// Keeps refusals, which anybody can cause, from filling the disk with the audit log: the first few
// of one address, kind and outcome have a line each, the rest are counted for a while; and so many
// bytes of them a minute are written, of those who are not admitted apart from the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/server/audit_event.h"
#include "precis/status.h"

namespace precis {

class AuditLimit {
 public:
  explicit AuditLimit(const Clock& clock) : clock_(clock) {}

  struct Line {
    AuditWho who;
    AuditEvent event;
  };

  // Whether a refusal has a line of its own, of `size_bytes`. If not, it is counted.
  bool take(const AuditWho& who, const AuditEvent& event, std::size_t size_bytes);
  // Lines that say how many were counted, once their time is over; `all`: also before.
  std::vector<Line> due(bool all = false);

 private:
  // Address, tenant (of one that is admitted), what, outcome.
  using Key = std::tuple<std::string, std::string, std::string_view, StatusCode>;
  struct Row {
    std::uint64_t since_ns = 0;
    std::uint32_t told = 0;
    std::uint64_t more = 0;  // since then, and not told
  };
  struct Group {
    std::uint64_t since_ns = 0;
    std::uint64_t bytes = 0;  // since then
    std::uint64_t more = 0;   // not told, for there were too many bytes
  };
  Group& group_of(const std::string& tenant) { return tenant.empty() ? strangers_ : admitted_; }
  bool take_bytes(Group& group, std::size_t size_bytes);

  const Clock& clock_;
  std::map<Key, Row> rows_;  // limits::kAuditRepeatRowsMax
  Group strangers_, admitted_;
};

}  // namespace precis
