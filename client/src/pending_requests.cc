#include "client/src/pending_requests.h"

#include <algorithm>
#include <string>
#include <utility>

namespace precis {
namespace {

using std::chrono::milliseconds;

// The resolution of deadlines.
constexpr milliseconds kTickMin{1};

bool is_patient(const PendingRequest& request) { return request.patience == Patience::kWhileAlive; }

}  // namespace

void PendingRequests::add(std::uint64_t id, Ptr request) {
  request->started = Clock::now();
  rows_.emplace(id, std::move(request));
}

PendingRequests::Ptr PendingRequests::find(std::uint64_t id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : found->second;
}

PendingRequests::Ptr PendingRequests::take(std::uint64_t id) {
  auto row = rows_.extract(id);
  return row ? std::move(row.mapped()) : nullptr;
}

std::vector<PendingRequests::Ptr> PendingRequests::take_all() {
  std::vector<Ptr> all;
  for (auto& [id, request] : std::exchange(rows_, {})) all.push_back(request);
  return all;
}

std::vector<std::uint64_t> PendingRequests::holding_memory() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, request] : rows_) {
    if (request->held) ids.push_back(id);
  }
  return ids;
}

// An eighth of the timeout, so no timeout is noticed later than that.
PendingRequests::Clock::duration PendingRequests::tick() const {
  return std::clamp(timeout_ / 8, milliseconds{1}, milliseconds{1000});
}

PendingRequests::Clock::time_point PendingRequests::next_check(Clock::time_point now) const {
  Clock::time_point due = now + tick();
  for (const auto& [id, request] : rows_) {
    if (request->sink) due = std::min(due, request->deadline);
  }
  return std::max(due, now + kTickMin);
}

void PendingRequests::checked_late(Clock::time_point due) {
  const auto late_by = Clock::now() - due;
  if (late_by <= tick()) return;
  last_heard_ += late_by;
  for (const auto& [id, request] : rows_) request->started += late_by;
}

PendingRequests::Clock::time_point PendingRequests::since(const PendingRequest& request) const {
  return is_patient(request) ? std::max(request.started, last_heard_) : request.started;
}

std::vector<std::uint64_t> PendingRequests::late(Clock::time_point now) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, request] : rows_) {
    const bool waited_for = request->sink || !request->held;
    const bool too_late = now - since(*request) >= timeout_ || now >= request->deadline;
    if (waited_for && too_late) ids.push_back(id);
  }
  return ids;
}

bool PendingRequests::need_ping(Clock::time_point now) const {
  return std::ranges::any_of(rows_, [&](const auto& row) {
    return is_patient(*row.second) && now - since(*row.second) >= timeout_ / 2;
  });
}

Status PendingRequests::too_late(const PendingRequest& request, const std::string& address) const {
  const bool deadline = Clock::now() >= request.deadline;
  return Status::timed_out(
      std::string(request.name) + ": " +
      (deadline ? "its deadline passed while it waited for the answer of " + address
                : address + " did not answer within " + std::to_string(timeout_.count()) + " ms") +
      "; the outcome is unknown");
}

}  // namespace precis
