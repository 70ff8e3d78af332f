// Calls that do not block: for an engine's scheduler, whose thread must not wait for the service.
// Not part of client.h.
//
//   auto calls  = precis::Calls::make(client, 2);
//   auto ticket = (*calls)->lookup(model, tokens);   // at once
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

// Runs calls of a client on threads of its own, and keeps what comes of each until it is taken.
// Any thread may call it; nothing but the destructor waits. Calls begin in the order in which they
// were submitted, and end in any. So many as there are threads run at a time: calls that take long
// (a get of all layers, a commit) hold up lookups behind them, unless these have an object of their
// own.
class Calls {
 public:
  using Ticket = std::uint64_t;  // of one call; never 0, never used twice
  // LookupMatch of lookup(), Prefix of get(), SegmentInfo of commit(), nothing of waits. A prefix
  // is shared with nobody else.
  using Value =
      std::variant<std::monostate, LookupMatch, std::shared_ptr<Prefix>, msg::SegmentInfo>;
  struct Done {
    Ticket ticket = 0;
    Status status;  // as the call itself reports it; kCanceled: cancel() came while it ran
    Value result;   // std::monostate where the status is not ok
  };
  // Runs on one of the threads. `canceled` comes true where cancel() came meanwhile.
  using Call = std::function<Result<Value>(const std::atomic<bool>& canceled)>;

  // `threads`: 1 to limits::kCallThreadsMax, each of which begins with `on_start`. A deadline is
  // the client's (Client::with_deadline()).
  static Result<std::unique_ptr<Calls>> make(std::shared_ptr<Client> client, unsigned threads,
                                             const std::function<void()>& on_start = {});
  // Forgets what has not begun, and waits for what runs.
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // All of these return at once; the call itself is checked where it runs. kRejected where
  // limits::kCallsMax calls were submitted whose outcome was not taken, or where the paths of those
  // hold more than limits::kCallTokensMax tokens: poll() first. Then nothing was submitted.
  Result<Ticket> lookup(Model model, std::vector<TokenId> tokens,
                        const LookupOptions& options = {});
  // A call for each path, in this order; all of them or none.
  Result<std::vector<Ticket>> lookup_many(const Model& model,
                                          std::vector<std::vector<TokenId>> paths,
                                          const LookupOptions& options = {});
  // Begins the get and waits for all of it. What `options` points to is copied, but not the memory
  // that rows are left in: that must live until the call is over, for which cancel() tells when.
  Result<Ticket> get(LookupMatch match, const Budget& keep = Budget::all(),
                     const GetOptions& options = {});
  Result<Ticket> wait_layer(std::shared_ptr<const Prefix> prefix, std::uint32_t layer);
  Result<Ticket> wait(std::shared_ptr<const Prefix> prefix);
  // Until it is over nobody else may call the put.
  Result<Ticket> commit(std::shared_ptr<Put> put, Durability durability = Durability::kWal);
  Result<Ticket> submit(Call call);

  // Readable while the outcome of a call waits to be taken; for poll(2) and the like alone. It
  // stays open as long as this object.
  int descriptor() const;
  // Takes the outcomes that there are, in the order in which they came.
  std::vector<Done> poll();
  // True: the call is forgotten; it had not begun, or was over, and no outcome of it comes. False:
  // it runs, and its outcome comes once it touches nothing any more (a get ends with kCanceled
  // after the layer at hand); or there is no such call.
  bool cancel(Ticket ticket);

 private:
  struct Impl;
  explicit Calls(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
