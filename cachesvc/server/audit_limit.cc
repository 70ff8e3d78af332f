#include "cachesvc/server/audit_limit.h"

#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kNsPerMinute = 60'000 * kNsPerMs;

// Removes the port, which changes with each connection. For a local client, keeps the user ("unix:
// uid 1000") and removes the process.
std::string address_of(const std::string& from) {
  return from.substr(0, from.starts_with("unix") ? from.find(',') : from.rfind(':'));
}

}  // namespace

bool AuditLimit::take(const AuditWho& who, const AuditEvent& event, std::size_t size_bytes) {
  // Before it is admitted, a client can name any tenant.
  const std::string tenant = event.what == "Connect" ? "" : who.tenant;
  const Key key{address_of(who.from), tenant, event.what, event.outcome.code()};
  auto row = rows_.find(key);
  if (row == rows_.end() && rows_.size() < limits::kAuditRepeatRowsMax) {
    row = rows_.emplace(key, Row{clock_.monotonic_ns()}).first;
  }
  if (row != rows_.end() && row->second.told >= limits::kAuditRepeatsToldMax) {
    ++row->second.more;
    return false;
  }
  Group& group = group_of(tenant);
  if (!take_bytes(group, size_bytes)) {
    ++group.more;
    return false;
  }
  if (row != rows_.end()) ++row->second.told;
  return true;
}

bool AuditLimit::take_bytes(Group& group, std::size_t size_bytes) {
  const std::uint64_t now = clock_.monotonic_ns();
  if (now - group.since_ns >= kNsPerMinute) {
    group.since_ns = now;
    group.bytes = 0;
  }
  if (group.bytes + size_bytes > limits::kAuditRefusedBytesPerMinute) return false;
  group.bytes += size_bytes;
  return true;
}

std::vector<AuditLimit::Line> AuditLimit::due(bool all) {
  const std::uint64_t now = clock_.monotonic_ns();
  std::vector<Line> lines;
  for (auto at = rows_.begin(); at != rows_.end();) {
    const auto& [key, row] = *at;
    if (!all && now - row.since_ns < limits::kAuditRepeatMs * kNsPerMs) {
      ++at;
      continue;
    }
    const auto& [address, tenant, what, code] = key;
    // Such a line is short, but there may be one for each of many addresses.
    Group& group = group_of(tenant);
    if (row.more > 0 && take_bytes(group, limits::kAuditMoreLineBytes)) {
      lines.push_back({{.tenant = tenant, .from = address},
                       {.what = what,
                        .outcome = Status(
                            code, "and " + std::to_string(row.more) + " more from this address")}});
    } else {
      group.more += row.more;
    }
    at = rows_.erase(at);
  }
  for (const auto& [group, whose] : {std::pair{&unadmitted_, "of clients that were not admitted"},
                                     std::pair{&admitted_, "of tenants"}}) {
    if (group->more == 0 || (!all && now - group->since_ns < kNsPerMinute)) continue;
    lines.push_back(
        {{},
         {.what = "Suppressed",
          .of = std::to_string(std::exchange(group->more, 0)) + " refusals " + whose,
          .outcome = Status::rejected("they were more than " +
                                      std::to_string(limits::kAuditRefusedBytesPerMinute) +
                                      " B in a minute")}});
  }
  return lines;
}

}  // namespace precis
