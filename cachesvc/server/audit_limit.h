// Keeps refusals, which anyone can cause, from filling the disk with audit lines. The first few
// refusals of one address, kind and outcome get a line each; the rest are counted for a while. The
// bytes per minute are limited, separately for clients that are not admitted and for tenants.
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

  // Returns whether a refusal gets its own line, of `size_bytes`. If not, it is counted.
  bool take(const AuditWho& who, const AuditEvent& event, std::size_t size_bytes);
  // Returns the lines that report counted refusals and are due; `all`: also those not yet due.
  std::vector<Line> due(bool all = false);

 private:
  // Address, tenant (empty before admission), what, outcome.
  using Key = std::tuple<std::string, std::string, std::string_view, StatusCode>;
  struct Row {
    std::uint64_t since_ns = 0;
    std::uint32_t told = 0;
    std::uint64_t more = 0;  // refusals since then without a line
  };
  struct Group {
    std::uint64_t since_ns = 0;
    std::uint64_t bytes = 0;  // since then
    std::uint64_t more = 0;   // refusals without a line because of the limit of bytes
  };
  Group& group_of(const std::string& tenant) { return tenant.empty() ? unadmitted_ : admitted_; }
  bool take_bytes(Group& group, std::size_t size_bytes);

  const Clock& clock_;
  std::map<Key, Row> rows_;  // at most limits::kAuditRepeatRowsMax
  Group unadmitted_, admitted_;
};

}  // namespace precis
