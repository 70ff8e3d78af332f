// Executes the requests of one client: small requests are answered from the catalog, bulk requests
// by the paths. One object per connection; it holds the client's puts and gets in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "cachesvc/base/log.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_turns.h"
#include "cachesvc/pipeline/get_path.h"
#include "cachesvc/pipeline/lookup.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/put_path.h"
#include "cachesvc/pipeline/trim.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/log_limiter.h"

namespace precis {

class Handlers {
 public:
  // The parts that requests use. All outlive the handlers.
  struct Parts {
    EventLoop& loop;
    FairExecutor& storage;
    Catalog& catalog;
    HotTier& hot_tier;
    Projections& projections;
    PutPath& put_path;
    GetPath& get_path;
    ColdReads& cold_reads;
    TrimPath& trim_path;
    Lookup& lookup;
    PathHasher& paths;
    FairTurns& turns;  // for received messages
    PayloadMemory& memory;
    Admission& admission;
    Metrics& metrics;
    Log& log;
    Audit& audit;
    LogLimiter& refused;  // limits log lines about refused requests
    BudgetDefaults configured;
    std::function<msg::ServerStatus(const std::string& tenant)> server_status;
    std::function<msg::Stats(const std::string& tenant)> server_stats;
    // OK if an answer of this size may be sent. kRejected if too much is unsent already.
    std::function<Status(const std::string& tenant, std::size_t size_bytes)> may_send;
  };
  using Answer = Result<msg::ReplyBody>;

  // `client`: the name that the client gives itself.
  Handlers(const Parts& parts, Tenant tenant, std::string client, Connection& connection,
           std::function<Status(msg::LayerServed)> served);
  ~Handlers();  // drops the puts in progress

  Task<Answer> handle(std::uint64_t id, msg::RequestBody body);
  // Answers a keep-alive that clients send while they wait. It refers to no object, so it looks
  // nothing up.
  static Task<Answer> on(std::uint64_t id, msg::Ping request);
  // The client has disconnected: gets in progress stop at their next layer, puts are aborted.
  void cancel();
  // Aborts the puts that have received nothing for `silence`. Returns their number.
  std::size_t give_up_silent_puts(std::chrono::steady_clock::duration silence);

 private:
  // A put in progress. Its promised memory and its quota are released with it.
  struct WriterPut {
    std::shared_ptr<OpenPut> put;  // shared as PutPath::begin() says
    Quota::Hold counted;
  };

  Task<Answer> on(std::uint64_t id, msg::RegisterModel request);
  Task<Answer> on(std::uint64_t id, msg::ListModels request);
  Task<Answer> on(std::uint64_t id, msg::BeginPut request);
  Task<Answer> on(std::uint64_t id, msg::PushLayer request);
  Task<Answer> on(std::uint64_t id, msg::CommitPut request);
  Task<Answer> on(std::uint64_t id, msg::AbortPut request);
  Task<Answer> on(std::uint64_t id, msg::Lookup request);
  Task<Answer> on(std::uint64_t id, msg::Get request);
  Task<Answer> on(std::uint64_t id, msg::Cancel request);
  Task<Answer> on(std::uint64_t id, msg::OpenSession request);
  Task<Answer> on(std::uint64_t id, msg::AdvanceSession request);
  Task<Answer> on(std::uint64_t id, msg::PinSession request);
  Task<Answer> on(std::uint64_t id, msg::ForkSession request);
  Task<Answer> on(std::uint64_t id, msg::ShowSession request);
  Task<Answer> on(std::uint64_t id, msg::ListSessions request);
  Task<Answer> on(std::uint64_t id, msg::RemoveSession request);
  Task<Answer> on(std::uint64_t id, msg::ListPrefixes request);
  Task<Answer> on(std::uint64_t id, msg::ShowPrefix request);
  Task<Answer> on(std::uint64_t id, msg::RemovePrefix request);
  Task<Answer> on(std::uint64_t id, msg::CheckPrefix request);
  Task<Answer> on(std::uint64_t id, msg::TrimPrefix request);
  Task<Answer> on(std::uint64_t id, msg::ShowBudget request);
  Task<Answer> on(std::uint64_t id, msg::SetBudget request);
  Task<Answer> on(std::uint64_t id, msg::GetStats request);
  Task<Answer> on(std::uint64_t id, msg::GetStatus request);
  Task<Answer> on(std::uint64_t id, msg::PushProjection request);
  Task<Answer> on(std::uint64_t id, msg::AddProfile request);
  Task<Answer> on(std::uint64_t id, msg::ListProfiles request);
  Task<Answer> on(std::uint64_t id, msg::ShowProfile request);
  Task<Answer> on(std::uint64_t id, msg::RemoveProfile request);
  Task<Answer> on(std::uint64_t id, msg::FindPrefix request);

  // Sets in_memory: whether every layer of the segment is in the hot tier.
  msg::SegmentInfo with_tier(msg::SegmentInfo info) const;
  // A change by a request, for the log and the audit log.
  struct Change {
    std::string_view request;     // its name
    std::string_view event = {};  // name of the log line; empty: no line
    std::string of = {};
    std::string text = {};  // for the log
    std::optional<std::string> was = {}, is = {};
  };
  void note(Change change);
  // The recipe and keep that are set for this scope itself.
  std::string budget_text(const msg::BudgetScope& scope) const;
  // The tip of a session, or none if there is no such session.
  std::optional<std::string> tip_of(const std::string& session) const;
  Result<std::shared_ptr<OpenPut>> find_put(std::uint64_t put) const;
  // Runs a blocking catalog call on the storage executor, in this connection's turn.
  template <typename Fn>
  auto stored(Fn fn) {
    return run_on(parts_.storage, parts_.loop, tenant_.owner(&connection_), std::move(fn));
  }

  // Runs a function that reads many rows on a thread off the loop, in this connection's turn.
  template <typename Fn>
  Task<std::invoke_result_t<Fn&>> listed(Fn fn) {
    std::optional<std::invoke_result_t<Fn&>> result;
    co_await in_turns(parts_.paths.turns(), parts_.loop, tenant_.owner(&connection_), [&] {
      result.emplace(fn());
      return false;
    });
    co_return std::move(*result);
  }

  const Parts& parts_;
  Tenant tenant_;
  std::string client_;
  Connection& connection_;
  bool gone_ = false;
  std::uint32_t counting_ = 0;  // lookups in progress that count entries
  std::function<Status(msg::LayerServed)> served_;
  std::uint64_t next_put_ = 1;
  Quota::Part put_part_;
  std::unordered_map<std::uint64_t, WriterPut> puts_;
  struct CommittedPut {
    std::uint64_t put;
    SegmentId segment;
  };
  // The latest puts that ended in these ways.
  std::deque<std::uint64_t> silent_puts_;    // given up
  std::deque<CommittedPut> committed_puts_;  // for repeated commits
  std::unordered_map<std::uint64_t, std::shared_ptr<GetPath::Get>> gets_;
};

}  // namespace precis
