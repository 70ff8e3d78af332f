#include "precis/calls.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

// The options of a get that starts later, with copies of the arrays they point to.
struct OwnedOptions {
  explicit OwnedOptions(const GetOptions& given)
      : out(given.out.begin(), given.out.end()), options(given) {
    if (!given.pages) return;
    table.assign(given.pages->table.begin(), given.pages->table.end());
    starts.assign(given.pages->starts.begin(), given.pages->starts.end());
  }
  GetOptions view() const {
    GetOptions view = options;
    view.out = out;
    if (view.pages) {
      view.pages->table = table;
      view.pages->starts = starts;
    }
    return view;
  }
  std::vector<LayerOut> out;
  std::vector<std::uint32_t> table, starts;
  GetOptions options;
};

Result<Calls::Value> as_value(const Status& status) {
  if (!status.ok()) return status;
  return Calls::Value();
}

}  // namespace

struct Calls::Impl {
  struct Waiting {
    Ticket ticket;
    std::size_t num_tokens;  // of its path
    Call call;
  };
  struct Running {
    std::size_t num_tokens = 0;
    std::atomic<bool> canceled{false};
  };
  struct Over {
    Done done;
    std::size_t num_tokens;
  };

  Impl(std::shared_ptr<Client> shared, int event) : client(std::move(shared)), descriptor(event) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<std::vector<Ticket>> submit(std::vector<std::pair<std::size_t, Call>> added);
  Result<Ticket> submit_one(std::size_t num_tokens, Call call);
  Call lookup(Model model, std::vector<TokenId> tokens, const LookupOptions& options) const;
  void run();
  // Make the descriptor readable, and not readable. Callers hold mutex.
  void set_readable();
  void clear_readable();

  const std::shared_ptr<Client> client;
  const int descriptor;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex, as all below.
  bool ends = false;
  Ticket last = 0;
  std::size_t tokens = 0;  // of the paths of all calls below
  std::deque<Waiting> waiting;
  std::map<Ticket, Running> running;
  std::vector<Over> over;
};

Calls::Impl::~Impl() {
  std::deque<Waiting> dropped;
  {
    const std::lock_guard lock(mutex);
    ends = true;
    dropped.swap(waiting);
  }
  changed.notify_all();
  dropped.clear();
  for (std::thread& thread : threads) thread.join();
  ::close(descriptor);
}

Result<std::vector<Calls::Ticket>> Calls::Impl::submit(
    std::vector<std::pair<std::size_t, Call>> added) {
  std::size_t added_tokens = 0;
  for (const auto& [num_tokens, call] : added) added_tokens += num_tokens;
  std::vector<Ticket> tickets;
  const std::lock_guard lock(mutex);
  const std::size_t count = waiting.size() + running.size() + over.size();
  if (count + added.size() > limits::kCallsMax) {
    return Status::rejected("calls: " + std::to_string(added.size()) + " more calls beside " +
                            std::to_string(count) + " that poll() has not returned, the limit is " +
                            std::to_string(limits::kCallsMax) + ": poll first");
  }
  if (added_tokens > limits::kCallTokensMax - tokens) {
    return Status::rejected("calls: paths of " + std::to_string(added_tokens) +
                            " more tokens beside " + std::to_string(tokens) +
                            " of calls that poll() has not returned, the limit is " +
                            std::to_string(limits::kCallTokensMax) + ": poll first");
  }
  tokens += added_tokens;
  for (auto& [num_tokens, call] : added) {
    tickets.push_back(++last);
    waiting.push_back({last, num_tokens, std::move(call)});
    changed.notify_one();
  }
  return tickets;
}

Result<Calls::Ticket> Calls::Impl::submit_one(std::size_t num_tokens, Call call) {
  std::vector<std::pair<std::size_t, Call>> one;
  one.emplace_back(num_tokens, std::move(call));
  PRECIS_ASSIGN(const auto tickets, submit(std::move(one)));
  return tickets.front();
}

Calls::Call Calls::Impl::lookup(Model model, std::vector<TokenId> path,
                                const LookupOptions& options) const {
  return [client = client, model = std::move(model), path = std::move(path),
          options](const auto&) -> Result<Value> {
    PRECIS_ASSIGN(LookupMatch match, client->lookup(model, path, options));
    return Value(std::move(match));
  };
}

void Calls::Impl::set_readable() {
  const std::uint64_t one = 1;
  // The write fails only if the descriptor is already readable.
  [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof(one));
}

void Calls::Impl::clear_readable() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(descriptor, &count, sizeof(count));
}

void Calls::Impl::run() {
  ::pthread_setname_np(::pthread_self(), "precis-calls");
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return ends || !waiting.empty(); });
    if (ends) return;
    Waiting next = std::move(waiting.front());
    waiting.pop_front();
    Running& mine = running[next.ticket];  // a map's elements keep their address
    mine.num_tokens = next.num_tokens;
    lock.unlock();
    Result<Value> outcome = next.call(mine.canceled);
    next.call = nullptr;  // releases the objects that the call owns before its outcome is visible
    if (mine.canceled.load()) outcome = Status::canceled("the call was canceled while it ran");
    lock.lock();
    Done done{next.ticket, outcome.status(), {}};
    if (outcome.ok()) done.result = std::move(*outcome);
    over.push_back({std::move(done), next.num_tokens});
    running.erase(next.ticket);
    set_readable();
  }
}

Calls::Calls(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Calls::~Calls() = default;

Result<std::unique_ptr<Calls>> Calls::make(std::shared_ptr<Client> client, unsigned threads,
                                           const std::function<void()>& on_start) {
  if (!client) return Status::invalid("calls: no client");
  if (threads < 1 || threads > limits::kCallThreadsMax) {
    return Status::invalid("calls: threads is " + std::to_string(threads) + ", must be in [1, " +
                           std::to_string(limits::kCallThreadsMax) + "]");
  }
  const int event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0) {
    return Status::out_of_space(std::string("calls: no event descriptor: ") + std::strerror(errno));
  }
  auto impl = std::make_unique<Impl>(std::move(client), event);
  for (unsigned i = 0; i < threads; ++i) {
    impl->threads.emplace_back([own = impl.get(), on_start] {
      if (on_start) on_start();
      own->run();
    });
  }
  return std::unique_ptr<Calls>(new Calls(std::move(impl)));
}

Result<Calls::Ticket> Calls::lookup(Model model, std::vector<TokenId> tokens,
                                    const LookupOptions& options) {
  const std::size_t num_tokens = tokens.size();
  return impl_->submit_one(num_tokens, impl_->lookup(std::move(model), std::move(tokens), options));
}

Result<std::vector<Calls::Ticket>> Calls::lookup_many(const Model& model,
                                                      std::vector<std::vector<TokenId>> paths,
                                                      const LookupOptions& options) {
  std::vector<std::pair<std::size_t, Call>> added;
  for (auto& path : paths) {
    const std::size_t num_tokens = path.size();
    added.emplace_back(num_tokens, impl_->lookup(model, std::move(path), options));
  }
  return impl_->submit(std::move(added));
}

Result<Calls::Ticket> Calls::get(LookupMatch match, const Budget& keep, const GetOptions& options) {
  return submit([client = impl_->client, match = std::move(match), keep,
                 owned = OwnedOptions(options)](const auto& canceled) -> Result<Value> {
    PRECIS_ASSIGN(Prefix prefix, client->get(match, keep, owned.view()));
    for (std::uint32_t layer = 0; layer < prefix.num_layers() && !canceled.load(); ++layer) {
      PRECIS_TRY(prefix.wait_layer(layer));
    }
    if (!canceled.load()) PRECIS_TRY(prefix.wait());
    return Value(std::make_shared<Prefix>(std::move(prefix)));
  });
}

Result<Calls::Ticket> Calls::wait_layer(std::shared_ptr<const Prefix> prefix, std::uint32_t layer) {
  return submit([prefix = std::move(prefix), layer](const auto&) {
    return as_value(prefix->wait_layer(layer));
  });
}

Result<Calls::Ticket> Calls::wait(std::shared_ptr<const Prefix> prefix) {
  return submit([prefix = std::move(prefix)](const auto&) { return as_value(prefix->wait()); });
}

Result<Calls::Ticket> Calls::commit(std::shared_ptr<Put> put, Durability durability) {
  return submit([put = std::move(put), durability](const auto&) -> Result<Value> {
    PRECIS_ASSIGN(msg::SegmentInfo segment, put->commit(durability));
    return Value(std::move(segment));
  });
}

Result<Calls::Ticket> Calls::submit(Call call) { return impl_->submit_one(0, std::move(call)); }

int Calls::descriptor() const { return impl_->descriptor; }

std::vector<Calls::Done> Calls::poll() {
  std::vector<Impl::Over> taken;
  {
    const std::lock_guard lock(impl_->mutex);
    taken.swap(impl_->over);
    for (const Impl::Over& one : taken) impl_->tokens -= one.num_tokens;
    if (!taken.empty()) impl_->clear_readable();
  }
  std::vector<Done> done;
  done.reserve(taken.size());
  for (Impl::Over& one : taken) done.push_back(std::move(one.done));
  return done;
}

void Calls::give_back(std::vector<Done> done) {
  if (done.empty()) return;
  std::vector<Impl::Over> taken;
  for (Done& one : done) taken.push_back({std::move(one), 0});
  const std::lock_guard lock(impl_->mutex);
  impl_->over.insert(impl_->over.begin(), std::make_move_iterator(taken.begin()),
                     std::make_move_iterator(taken.end()));
  impl_->set_readable();
}

bool Calls::cancel(Ticket ticket) {
  std::deque<Impl::Waiting> waiting;  // destroys dropped calls after the lock is released
  std::vector<Impl::Over> over;
  const std::lock_guard lock(impl_->mutex);
  const auto queued = std::ranges::find(impl_->waiting, ticket, &Impl::Waiting::ticket);
  if (queued != impl_->waiting.end()) {
    impl_->tokens -= queued->num_tokens;
    waiting.push_back(std::move(*queued));
    impl_->waiting.erase(queued);
    return true;
  }
  const auto ended =
      std::ranges::find(impl_->over, ticket, [](const Impl::Over& one) { return one.done.ticket; });
  if (ended != impl_->over.end()) {
    impl_->tokens -= ended->num_tokens;
    over.push_back(std::move(*ended));
    impl_->over.erase(ended);
    if (impl_->over.empty()) impl_->clear_readable();
    return true;
  }
  const auto runs = impl_->running.find(ticket);
  if (runs != impl_->running.end()) runs->second.canceled.store(true);
  return false;
}

}  // namespace precis
