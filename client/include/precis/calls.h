// Non-blocking calls, for an engine's scheduler, whose thread must not wait for the service. Not
// part of client.h.
//
//   auto calls  = precis::Calls::make(client, 2);
//   auto ticket = (*calls)->lookup(model, tokens);   // returns at once
//   ... poll(2) or epoll says that (*calls)->descriptor() is readable ...
//   for (precis::Calls::Done& done : (*calls)->poll()) { done.ticket, done.status, done.result }
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "precis/client.h"
#include "precis/status.h"

namespace precis {

// Runs a client's calls on threads of its own, and keeps each outcome until the caller takes it.
// Thread-safe; only the destructor waits. Calls start in the order of submission and end in any
// order. At most one call per thread runs at a time. A long call (a get of all layers, a commit)
// delays the lookups behind it; use a second Calls object for lookups if that matters.
class Calls {
 public:
  using Ticket = std::uint64_t;  // names one call; never 0, never reused
  // lookup() yields a LookupMatch, get() a Prefix, commit() a SegmentInfo; waits yield nothing. The
  // caller is the only owner of the Prefix.
  using Value =
      std::variant<std::monostate, LookupMatch, std::shared_ptr<Prefix>, msg::SegmentInfo>;
  struct Done {
    Ticket ticket = 0;
    Status status;  // the call's own status; kCanceled if cancel() named it while it ran
    Value result;   // std::monostate if the status is not ok
  };
  // Runs on one of the threads. `canceled` becomes true if cancel() names the call while it runs.
  using Call = std::function<Result<Value>(const std::atomic<bool>& canceled)>;

  // `threads`: 1 to limits::kCallThreadsMax; each thread runs `on_start` first. The calls have the
  // client's deadline (Client::with_deadline()).
  static Result<std::unique_ptr<Calls>> make(std::shared_ptr<Client> client, unsigned threads,
                                             const std::function<void()>& on_start = {});
  // Drops the calls that have not started, and waits for the running calls.
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // These functions return at once; the call checks its own arguments when it runs. kRejected if
  // limits::kCallsMax submitted calls have not been taken by poll(), or if their paths together
  // have more than limits::kCallTokensMax tokens: poll() first. A rejected call was not submitted.
  Result<Ticket> lookup(Model model, std::vector<TokenId> tokens,
                        const LookupOptions& options = {});
  // Submits one call per path, in this order: all of them or, on an error, none.
  Result<std::vector<Ticket>> lookup_many(const Model& model,
                                          std::vector<std::vector<TokenId>> paths,
                                          const LookupOptions& options = {});
  // Starts the get and waits for all its layers. The arrays that `options` points to are copied,
  // but not the memory that rows are written to: it must live until the call is over, also if the
  // call is canceled (see cancel()).
  Result<Ticket> get(LookupMatch match, const Budget& keep = Budget::all(),
                     const GetOptions& options = {});
  Result<Ticket> wait_layer(std::shared_ptr<const Prefix> prefix, std::uint32_t layer);
  Result<Ticket> wait(std::shared_ptr<const Prefix> prefix);
  // No other thread may use the put until the call is over.
  Result<Ticket> commit(std::shared_ptr<Put> put, Durability durability = Durability::kWal);
  Result<Ticket> submit(Call call);

  // A file descriptor that is readable while poll() has outcomes to return. Use it only with
  // poll(2), epoll or similar. It stays open as long as this object lives.
  int descriptor() const;
  // Returns and removes all outcomes that are ready, in the order in which the calls ended.
  std::vector<Done> poll();
  // Undoes a poll() whose outcomes could not be used: the next one returns them first.
  void give_back(std::vector<Done> done);
  // True: the call had not started, or had ended and was not taken yet. It is dropped, and poll()
  // returns no outcome of it. False: the call is running, and poll() returns its outcome once it no
  // longer touches any memory (a get ends with kCanceled after the current layer); or there is no
  // such call.
  bool cancel(Ticket ticket);

 private:
  struct Impl;
  explicit Calls(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
