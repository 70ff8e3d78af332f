#include "cachesvc/server/handlers.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/server/change_text.h"
#include "precis/block_digest.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Converts a Result<T> to a reply body.
template <typename T>
Handlers::Answer answer(Result<T> result) {
  if (!result.ok()) return result.status();
  return msg::ReplyBody(std::move(result).value());
}
Handlers::Answer answer(Status status) {
  if (!status.ok()) return status;
  return msg::ReplyBody(msg::Done{});
}

// Keeps the latest ended puts, as many as a connection may have in progress.
template <typename Ended>
void keep_latest(Ended& ended) {
  while (ended.size() > limits::kPutsPerConnectionMax) ended.pop_front();
}

Status check_name(const char* field, const std::string& name) {
  if (!name.empty() && name.size() <= limits::kNameBytesMax) return {};
  return Status::invalid(std::string(field) + " has " + std::to_string(name.size()) +
                         " bytes, must have 1 to " + std::to_string(limits::kNameBytesMax));
}

}  // namespace

Handlers::Handlers(const Parts& parts, Tenant tenant, std::string client, Connection& connection,
                   std::function<Status(msg::LayerServed)> served)
    : parts_(parts),
      tenant_(std::move(tenant)),
      client_(std::move(client)),
      connection_(connection),
      served_(std::move(served)),
      put_part_(parts.admission.puts, tenant_.owner(&connection_)) {}

Handlers::~Handlers() {
  for (auto& [id, open] : puts_) static_cast<void>(parts_.put_path.abort(*open.put));
  puts_.clear();
  parts_.memory.retry();
}

Task<Handlers::Answer> Handlers::handle(std::uint64_t id, msg::RequestBody body) {
  co_return co_await std::visit([&](auto& request) { return on(id, std::move(request)); }, body);
}

void Handlers::cancel() {
  gone_ = true;
  for (auto& [id, get] : gets_) get->canceled = true;
  // Other writers of a joint put may wait for this client's part. The abort tells them.
  for (auto& [id, open] : puts_) static_cast<void>(parts_.put_path.abort(*open.put));
}

msg::SegmentInfo Handlers::with_tier(msg::SegmentInfo info) const {
  const auto row = parts_.catalog.segment(tenant_.name, info.id);
  info.in_memory = false;
  if (!row.ok()) return info;
  const auto layers = static_cast<std::uint32_t>((*row)->layer_bytes.size());
  const std::vector<bool> hot = parts_.hot_tier.present(info.id, layers, *row);
  info.in_memory = std::ranges::all_of(hot, std::identity());
  return info;
}

void Handlers::note(Change change) {
  if (change.was && change.was == change.is) return;  // nothing changed
  if (!change.event.empty()) {
    parts_.log.info(change.event, {{"from", connection_.peer()},
                                   {"tenant", tenant_.name},
                                   {"of", change.of},
                                   {"change", change.text},
                                   {"was", change.was.value_or("")}});
  }
  parts_.audit.write(
      {tenant_.name, client_, connection_.peer()},
      {change.request, std::move(change.of), std::move(change.was), std::move(change.is)});
}

std::string Handlers::budget_text(const msg::BudgetScope& scope) const {
  const auto budgets = parts_.catalog.budgets(tenant_.name, scope, parts_.configured);
  const msg::BudgetRow& own = budgets.layers.back();  // the narrowest: the scope's own
  return "recipe " + (own.recipe.empty() ? "unset" : own.recipe) + ", keep " +
         (own.keep ? own.keep->to_string() : "unset");
}

std::optional<std::string> Handlers::tip_of(const std::string& session) const {
  const auto row = parts_.catalog.session(tenant_.name, session);
  if (!row.ok()) return {};
  return row->tip.is_null() ? "no tip" : row->tip.hex();
}

Result<std::shared_ptr<OpenPut>> Handlers::find_put(std::uint64_t put) const {
  const auto it = puts_.find(put);
  if (it != puts_.end()) return it->second.put;
  if (std::ranges::find(silent_puts_, put) != silent_puts_.end()) {
    return Status::unavailable("put " + std::to_string(put) +
                               " was given up: nothing was heard of it while others waited for its "
                               "memory; put again");
  }
  return Status::not_found("put " + std::to_string(put) +
                           " is not under way on this connection; it ended, or never began");
}

std::size_t Handlers::give_up_silent_puts(std::chrono::steady_clock::duration silence) {
  const auto since = std::chrono::steady_clock::now() - silence;
  const std::size_t given_up = std::erase_if(puts_, [&](const auto& row) {
    OpenPut& put = *row.second.put;
    if (!PutPath::is_silent(put, since) || !parts_.put_path.abort(put).ok()) return false;
    silent_puts_.push_back(row.first);
    return true;
  });
  keep_latest(silent_puts_);
  parts_.metrics.puts_silent += static_cast<std::int64_t>(given_up);
  if (given_up > 0) parts_.memory.retry();
  return given_up;
}

// ---- models and puts ----------------------------------------------------------------------------

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::RegisterModel request) {
  PRECIS_CO_TRY(request.model.validate());
  const bool known = parts_.catalog.model(tenant_.name, model_fingerprint(request.model)).ok();
  PRECIS_CO_ASSIGN(auto row, co_await stored([&] {
                     return parts_.catalog.register_model(tenant_.name, request.model);
                   }));
  if (!known) {
    note({.request = "RegisterModel",
          .event = "model registered",
          .of = row.fingerprint.hex(),
          .text = row.model.name,
          .is = row.model.name});
  }
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ListModels request) {
  co_return answer(
      co_await listed([&] { return parts_.catalog.models_page(tenant_.name, request); }));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::PushProjection request) {
  const auto find = [this, model = request.model, layer = request.layer] {
    return parts_.catalog.projection(tenant_.name, model, layer);
  };
  const std::string of =
      "layer " + std::to_string(request.layer) + " of model " + request.model.hex();
  const bool known = find().ok();  // a stored projection cannot be replaced
  PRECIS_CO_TRY(co_await parts_.projections.add(tenant_, std::move(request), connection_));
  const auto row = find();
  if (!known && row.ok()) {
    note({.request = "PushProjection", .of = of, .is = (*row)->weights.hex()});
  }
  co_return answer(Status());
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::AddProfile request) {
  const auto before = parts_.catalog.profiles(tenant_.name, std::nullopt);
  PRECIS_CO_ASSIGN(auto row, co_await stored([&] {
                     return parts_.catalog.add_profile(tenant_.name, request.json);
                   }));
  note({"AddProfile", "profile added", row.name, row.kind + " for model " + row.model.hex(),
        digest_of(before, row.model, row.name), row.digest.hex()});
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ListProfiles request) {
  if (request.model) {
    PRECIS_CO_TRY(parts_.catalog.model(tenant_.name, *request.model).status());
  }
  co_return msg::ReplyBody(msg::Profiles{parts_.catalog.profiles(tenant_.name, request.model)});
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ShowProfile request) {
  co_return answer(co_await stored(
      [&] { return parts_.catalog.profile(tenant_.name, request.model, request.name); }));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::RemoveProfile request) {
  const auto was =
      digest_of(parts_.catalog.profiles(tenant_.name, request.model), request.model, request.name);
  PRECIS_CO_TRY(co_await stored(
      [&] { return parts_.catalog.remove_profile(tenant_.name, request.model, request.name); }));
  note({"RemoveProfile", "profile removed", request.name, "of model " + request.model.hex(), was});
  co_return answer(Status());
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::BeginPut request) {
  const auto one_more = [this]() -> Status {
    if (puts_.size() < limits::kPutsPerConnectionMax) return {};
    return Status::rejected("this connection has " + std::to_string(puts_.size()) +
                            " puts under way, the most there may be; commit or abort one");
  };
  PRECIS_CO_TRY(one_more());
  WriterPut open;
  PRECIS_CO_ASSIGN(open.counted, Quota::take(put_part_, 1));
  PRECIS_CO_ASSIGN(open.put,
                   co_await parts_.put_path.begin(tenant_, std::move(request), connection_));
  // Meanwhile other puts may have begun, or the client may have left.
  const Status wanted = gone_ ? Status::canceled("the client has left") : one_more();
  if (!wanted.ok()) {
    static_cast<void>(parts_.put_path.abort(*open.put));
    co_return wanted;
  }
  msg::PutBegun begun = PutPath::describe(*open.put);
  begun.put = next_put_++;
  puts_.emplace(begun.put, std::move(open));
  co_return msg::ReplyBody(std::move(begun));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::PushLayer request) {
  PRECIS_CO_ASSIGN(auto put, find_put(request.put));
  co_return answer(co_await parts_.put_path.push(std::move(put), std::move(request), connection_));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::CommitPut request) {
  // The client may have stopped waiting for this commit, and now asks again.
  const auto known = std::ranges::find(committed_puts_, request.put, &CommittedPut::put);
  if (known != committed_puts_.end()) {
    const SegmentId segment = known->segment;
    PRECIS_CO_TRY(co_await stored(
        [&] { return parts_.catalog.harden(tenant_.name, segment, request.durability); }));
    PRECIS_CO_ASSIGN(auto info, parts_.catalog.info(tenant_.name, segment, /*with_plan=*/true));
    co_return msg::ReplyBody(with_tier(std::move(info)));
  }
  PRECIS_CO_ASSIGN(auto put, find_put(request.put));
  const JointPut::Writer writer = &puts_.at(request.put);
  PRECIS_CO_ASSIGN(auto info,
                   co_await parts_.put_path.commit(std::move(put), writer, request.durability));
  puts_.erase(request.put);
  committed_puts_.push_back({request.put, info.id});
  keep_latest(committed_puts_);
  co_return msg::ReplyBody(with_tier(std::move(info)));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::AbortPut request) {
  PRECIS_CO_ASSIGN(auto put, find_put(request.put));
  PRECIS_CO_TRY(parts_.put_path.abort(*put));
  puts_.erase(request.put);
  parts_.memory.retry();
  co_return answer(Status());
}

// ---- lookups and gets ---------------------------------------------------------------------------

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::Lookup request) {
  const std::size_t tokens = request.tokens.size();
  const bool counts = asks_for_counts(request);
  if (counts && counting_ >= limits::kGetsPerConnectionMax) {
    co_return Status::rejected("this connection has " + std::to_string(counting_) +
                                   " lookups of a budget under way, the most there may be",
                               limits::kRetryAfterRequestsMs);
  }
  counting_ += counts ? 1 : 0;
  auto match = co_await parts_.lookup.run(tenant_, std::move(request), &connection_, gone_);
  counting_ -= counts ? 1 : 0;
  ++parts_.metrics.lookups;
  parts_.metrics.lookup_tokens += static_cast<std::int64_t>(tokens);
  if (match.ok() && match->matched_tokens > 0) {
    ++parts_.metrics.lookup_hits;
    parts_.metrics.lookup_hit_tokens += match->matched_tokens;
  }
  co_return answer(std::move(match));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t id, msg::Get request) {
  if (gets_.size() >= limits::kGetsPerConnectionMax) {
    co_return Status::rejected("this connection has " + std::to_string(gets_.size()) +
                                   " gets under way, the most there may be; wait for one",
                               limits::kRetryAfterRequestsMs);
  }
  auto get = std::make_shared<GetPath::Get>(GetPath::Get{id});
  if (!gets_.emplace(id, get).second) {
    co_return Status::invalid("request id " + std::to_string(id) + " is in use by another get");
  }
  ++parts_.metrics.gets;
  auto done = co_await parts_.get_path.run(get, tenant_, std::move(request), connection_, served_);
  gets_.erase(id);
  if (!done.ok()) ++parts_.metrics.gets_failed;
  co_return answer(std::move(done));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::Cancel request) {
  const auto it = gets_.find(request.request);
  if (it != gets_.end()) it->second->canceled = true;  // else it is answered already
  co_return answer(Status());
}

// ---- sessions -----------------------------------------------------------------------------------

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::OpenSession request) {
  PRECIS_CO_TRY(check_name("session name", request.name));
  const auto before = parts_.catalog.session(tenant_.name, request.name);
  PRECIS_CO_ASSIGN(auto row, co_await stored([&] {
                     return parts_.catalog.open_session(tenant_.name, request);
                   }));
  const std::string ttl = ttl_text(row);
  if (!before.ok()) {
    note({.request = "OpenSession", .of = row.name, .is = "made, " + ttl});
  } else if (ttl != ttl_text(*before)) {
    note({.request = "OpenSession", .of = row.name, .was = ttl_text(*before), .is = ttl});
  }
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::AdvanceSession request) {
  const auto was = tip_of(request.name);
  PRECIS_CO_ASSIGN(auto row, co_await stored([&] {
                     return parts_.catalog.advance_session(tenant_.name, request);
                   }));
  note({.request = "AdvanceSession", .of = row.name, .was = was, .is = row.tip.hex()});
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::PinSession request) {
  const auto before = parts_.catalog.session(tenant_.name, request.name);
  PRECIS_CO_ASSIGN(
      auto row, co_await stored([&] { return parts_.catalog.pin_session(tenant_.name, request); }));
  note({"PinSession", row.pinned ? "session pinned" : "session unpinned", row.name,
        row.pinned ? "its tip stays" : "its tip may go",
        before.ok() && before->pinned ? "pinned" : "not pinned",
        row.pinned ? "pinned" : "not pinned"});
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ForkSession request) {
  PRECIS_CO_TRY(check_name("new session name", request.new_name));
  PRECIS_CO_ASSIGN(auto row, co_await stored([&] {
                     return parts_.catalog.fork_session(tenant_.name, request);
                   }));
  note({.request = "ForkSession", .of = row.name, .is = "made of " + request.name});
  co_return msg::ReplyBody(std::move(row));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ShowSession request) {
  co_return answer(parts_.catalog.session(tenant_.name, request.name));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ListSessions request) {
  co_return answer(
      co_await listed([&] { return parts_.catalog.sessions_page(tenant_.name, request); }));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::RemoveSession request) {
  const auto was = tip_of(request.name);
  PRECIS_CO_TRY(
      co_await stored([&] { return parts_.catalog.remove_session(tenant_.name, request.name); }));
  note({"RemoveSession", "session removed", request.name, "what was stored stays", was});
  co_return answer(Status());
}

// ---- operations ---------------------------------------------------------------------------------

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ListPrefixes request) {
  co_return answer(co_await listed([&]() -> Result<msg::Segments> {
    PRECIS_ASSIGN(msg::Segments page, parts_.catalog.segments_page(tenant_.name, request));
    for (msg::SegmentInfo& row : page.rows) row = with_tier(std::move(row));
    return page;
  }));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::FindPrefix request) {
  PRECIS_CO_ASSIGN(auto info, parts_.catalog.find_segment(tenant_.name, request.id_beginning));
  co_return msg::ReplyBody(with_tier(std::move(info)));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ShowPrefix request) {
  PRECIS_CO_ASSIGN(auto info,
                   parts_.catalog.info(tenant_.name, request.segment, /*with_plan=*/true));
  co_return msg::ReplyBody(with_tier(std::move(info)));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::RemovePrefix request) {
  std::vector<SegmentId> gone;
  auto removed = co_await stored([&] {
    return parts_.catalog.remove(tenant_.name, request.segment, request.recursive, &gone);
  });
  for (const SegmentId& id : gone) parts_.hot_tier.erase(id);
  parts_.memory.retry();
  if (removed.ok()) {
    const std::string gone_text =
        counted(removed->segments, "segment") + ", " + std::to_string(removed->bytes) + " B";
    note({"RemovePrefix", "prefix removed", request.segment.hex(), gone_text + " less", gone_text});
  }
  co_return answer(std::move(removed));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::CheckPrefix request) {
  co_return answer(co_await parts_.cold_reads.check(tenant_.owner(&connection_), request.segment));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::TrimPrefix request) {
  const auto before = parts_.catalog.info(tenant_.name, request.segment, /*with_plan=*/false);
  auto trimmed = co_await parts_.trim_path.run(tenant_.owner(&connection_), request);
  if (trimmed.ok() && trimmed->freed_bytes > 0 && !request.dry_run) {
    const auto size_text = [](std::uint64_t entries, std::uint64_t bytes) {
      return std::to_string(entries) + " entries, " + std::to_string(bytes) + " B";
    };
    note({"TrimPrefix", "prefix trimmed", request.segment.hex(),
          "keep " + request.budget.to_string() + ", " + std::to_string(trimmed->freed_bytes) +
              " B less",
          before.ok() ? size_text(before->entries, before->stored_bytes) : "",
          size_text(trimmed->entries, trimmed->stored_bytes)});
  }
  co_return answer(std::move(trimmed));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::ShowBudget request) {
  if (request.scope.model) {
    PRECIS_CO_TRY(parts_.catalog.model(tenant_.name, *request.scope.model).status());
  }
  co_return msg::ReplyBody(parts_.catalog.budgets(tenant_.name, request.scope, parts_.configured));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::SetBudget request) {
  if (request.scope.model) {
    PRECIS_CO_TRY(parts_.catalog.model(tenant_.name, *request.scope.model).status());
  }
  const std::string was = budget_text(request.scope);
  PRECIS_CO_TRY(co_await stored([&] { return parts_.catalog.set_budget(tenant_.name, request); }));
  note({"SetBudget", "budget set", scope_text(request.scope), change_text(request), was,
        budget_text(request.scope)});
  co_return msg::ReplyBody(parts_.catalog.budgets(tenant_.name, request.scope, parts_.configured));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::GetStats) {
  co_return msg::ReplyBody(parts_.server_stats(tenant_.name));
}

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::Ping) { co_return answer(Status()); }

Task<Handlers::Answer> Handlers::on(std::uint64_t, msg::GetStatus) {
  msg::ServerStatus status = parts_.server_status(tenant_.name);
  status.tenant = tenant_.name;
  status.transport = connection_.description();
  co_return msg::ReplyBody(std::move(status));
}

}  // namespace precis
