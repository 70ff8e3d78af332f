#include "cachesvc/server/session_requests.h"

#include "cachesvc/server/change_text.h"
#include "cachesvc/server/owner_check.h"

namespace precis {
std::optional<std::string> SessionRequests::tip_of(const std::string& session) const {
  const auto row = catalog_.session(tenant_, session);
  if (!row.ok()) return {};
  return row->tip.is_null() ? "no tip" : row->tip.hex();
}

// The path of a turn that was put without its session may be at another node than the session.
Status SessionRequests::not_advanced(const msg::AdvanceSession& request, Status failed) const {
  const bool is_lost = caller_.parts.membership != nullptr &&
                       failed.code() == StatusCode::kNotFound &&
                       catalog_.session(tenant_, request.name).ok();
  if (!is_lost) return failed;
  return Status::not_found(failed.message() +
                           "; in a cluster, a turn must be put with the name of its session "
                           "(Python: session=, C++: PutOptions::session)");
}

// Trims old turns in the background, if they take more than the session's total.
void SessionRequests::trim(const msg::SessionRow& row) const {
  if (row.total) caller_.parts.totals.changed(caller_.tenant.owner(nullptr), row.name);
}

// It may wait for etcd, so it does not run on a storage thread.
Task<Status> SessionRequests::end_former_budget(std::string name) const {
  if (!catalog_.has_former_budget(tenant_, name)) co_return Status();
  co_return co_await caller_.changed([&] { return catalog_.end_former_budget(tenant_, name); });
}

Task<Answer> SessionRequests::on(msg::OpenSession request) {
  PRECIS_CO_ASSIGN(const auto shard, owned_session(caller_, request.name));
  const auto before = catalog_.session(tenant_, request.name);
  PRECIS_CO_TRY(co_await end_former_budget(request.name));
  PRECIS_CO_ASSIGN(auto row, co_await caller_.stored([&] {
    return catalog_.open_session(tenant_, request, number_of(shard));
  }));
  PRECIS_CO_TRY(co_await caller_.shared(shard));
  const std::string is = session_text(row);
  if (!before.ok()) {
    caller_.note({.request = "OpenSession", .of = row.name, .is = "made, " + is});
  } else if (is != session_text(*before)) {
    caller_.note(
        {.request = "OpenSession", .of = row.name, .was = session_text(*before), .is = is});
  }
  if (request.total) trim(row);
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> SessionRequests::on(msg::AdvanceSession request) {
  PRECIS_CO_ASSIGN(const auto shard, owned_session(caller_, request.name));
  const auto was = tip_of(request.name);
  auto advanced = found_or_moved(caller_, shard, co_await caller_.stored([&] {
    return catalog_.advance_session(tenant_, request);
  }));
  if (!advanced.ok()) co_return not_advanced(request, advanced.status());
  const msg::SessionRow row = std::move(advanced).value();
  PRECIS_CO_TRY(co_await caller_.shared(shard));
  caller_.note({.request = "AdvanceSession", .of = row.name, .was = was, .is = row.tip.hex()});
  trim(row);
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> SessionRequests::on(msg::PinSession request) {
  PRECIS_CO_ASSIGN(const auto shard, owned_session(caller_, request.name));
  const auto before = catalog_.session(tenant_, request.name);
  PRECIS_CO_ASSIGN(auto row, found_or_moved(caller_, shard, co_await caller_.stored([&] {
                     return catalog_.pin_session(tenant_, request);
                   })));
  PRECIS_CO_TRY(co_await caller_.shared(shard));
  caller_.note({"PinSession", row.pinned ? "session pinned" : "session unpinned", row.name,
                row.pinned ? "its tip stays" : "its tip may be removed",
                before.ok() && before->pinned ? "pinned" : "not pinned",
                row.pinned ? "pinned" : "not pinned"});
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> SessionRequests::on(msg::ForkSession request) {
  PRECIS_CO_TRY(check_fork(caller_, request));
  PRECIS_CO_ASSIGN(const auto shard, owned_session(caller_, request.name));
  PRECIS_CO_TRY(co_await end_former_budget(request.new_name));
  PRECIS_CO_ASSIGN(auto row, found_or_moved(caller_, shard, co_await caller_.stored([&] {
                     return catalog_.fork_session(tenant_, request);
                   })));
  PRECIS_CO_TRY(co_await caller_.shared(shard));
  caller_.note({.request = "ForkSession", .of = row.name, .is = "made of " + request.name});
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> SessionRequests::on(msg::ShowSession request) {
  PRECIS_CO_ASSIGN(const auto shard, owned_session(caller_, request.name));
  auto row = found_or_moved(caller_, shard, catalog_.session(tenant_, request.name));
  PRECIS_CO_TRY(co_await caller_.shared(shard));  // a turn that a client has seen must not be lost
  co_return answer(std::move(row));
}

Task<Answer> SessionRequests::on(msg::ListSessions request) {
  co_return answer(
      co_await caller_.listed([&] { return catalog_.sessions_page(tenant_, request); }));
}

Task<Answer> SessionRequests::on(msg::RemoveSession request) {
  const auto was = tip_of(request.name);
  // Any node can remove a session, except its owner while it loads the shard.
  const auto shard = loaded_session(caller_, request.name);
  PRECIS_CO_TRY(shard.status());
  const Status removed =
      co_await caller_.stored([&] { return catalog_.remove_session(tenant_, request.name); });
  // If the session is absent, its removal may be recent and not copied yet.
  PRECIS_CO_TRY(co_await caller_.shared(*shard));
  PRECIS_CO_TRY(removed);
  caller_.note({"RemoveSession", "session removed", request.name, "its segments stay", was});
  co_return answer(Status());
}

}  // namespace precis
