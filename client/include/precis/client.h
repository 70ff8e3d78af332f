// The C++ client: the only header a program includes.
//
//   auto client = precis::Client::connect("127.0.0.1:7470");  // or precis::Client::open("dir")
//   auto model  = client->register_model(spec);
//   auto put    = client->begin_put(*model, tokens, options);  // recipe, keep, parent
//   for (l...)    put->layer(l, {.keys = k, .values = v});
//   auto stored = put->commit();
//   auto match  = client->lookup(*model, tokens);
//   auto prefix = client->get(*match, precis::Budget::ratio_ppm(200'000));
//   prefix->wait();                                // or wait_layer(), to begin with the first
//   prefix->head(layer, head).keys ...
//
// Nothing throws: every fallible call returns a Status or a Result. Objects are handles onto one
// way to the service, which they keep alive and renew; they may be used from any thread, a Put from
// one at a time. What may fail in every call: kTimedOut, kUnavailable and kRejected, as
// ConnectOptions tells.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precis/match.h"
#include "precis/messages.h"
#include "precis/options.h"
#include "precis/recipe.h"
#include "precis/status.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

class RemoteClient;

// A put under way. Destroyed before commit, it leaves no trace.
class Put {
 public:
  Put(Put&&) noexcept;
  Put& operator=(Put&&) noexcept;
  ~Put();

  // Which tokens are to be pushed, on what parent, by what recipe and to how many entries.
  const msg::PutBegun& begun() const;

  // Returns once the service holds the bytes: the memory may be reused. Compression goes on behind;
  // what it finds (a NaN, say) is reported by the next call. kInvalidArgument: a wrong shape, dtype
  // or layer, or a piece that overlaps one already pushed. An error ends the put. Of a put whose
  // segment is already stored the pieces are checked and not moved. Where the connection is lost
  // the put is begun anew if no piece was taken in; else it is kUnavailable, and must be put again.
  Status layer(std::uint32_t layer, const LayerPush& push);

  // As layer(), without waiting for it: the service takes pieces in one after the other while the
  // next ones are made. What `push` points to, but for pages and what is copied with them, stays as
  // it is until it was waited for: by wait_layers() or layer(), by commit() or abort(), by an error
  // that ends the put, or by the destructor, after which nothing reads it (and which may wait for
  // that). kLayersAheadMax pieces may be under way; a further one waits for the oldest. A deadline
  // counts from here.
  Status start_layer(std::uint32_t layer, const LayerPush& push);
  // Returns once the service holds the bytes of all that were started, but for the `left` last.
  Status wait_layers(std::size_t left = 0);
  static constexpr std::size_t kLayersAheadMax = 4;

  // Visible and as durable as asked once it returns OK. kInvalidArgument naming the missing layers.
  // Where the connection is lost meanwhile the service is asked whether the segment is stored;
  // kUnavailable if it is not: put again, which is safe in any case, as it is one segment. After
  // kTimedOut or kCanceled it may be asked again, for what came of it.
  Result<msg::SegmentInfo> commit(Durability durability = Durability::kWal);

  // Gives the put up; the service has forgotten it once this returns OK. Of one that has ended with
  // an error or been aborted there is nothing left to give up: OK. kInvalidArgument once committed.
  Status abort();

 private:
  friend class RemoteClient;
  struct Impl;
  explicit Put(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What is kept of one (layer, KV head): all arrays [count], K and V [count, head_dim]. A prefix of
// several segments stands segment by segment, each in retention order. Borrowed from the Prefix.
// Seats count within a segment.
struct HeadEntries {
  std::span<const std::uint32_t> positions;  // in the original sequence
  std::span<const std::uint32_t> seats;
  std::span<const float> scores;
  HeadsView keys, values;  // one head
};

// A prefix arriving or arrived. Its memory lives as long as the object; destroying it before it has
// arrived cancels the rest. The const methods may be called from several threads.
class Prefix {
 public:
  Prefix(Prefix&&) noexcept;
  Prefix& operator=(Prefix&&) noexcept;
  ~Prefix();

  const ModelSpec& model() const;
  std::uint32_t matched_tokens() const;
  std::uint32_t num_layers() const;
  std::uint32_t num_heads() const;  // KV heads of a layer: those that were asked for
  // Waits for one layer: it has arrived and its checksums held. kCorruption otherwise.
  Status wait_layer(std::uint32_t layer) const;
  // Waits for all.
  Status wait() const;
  // Of a layer that wait_layer() said OK to, and the head-th of the heads that were asked for;
  // asking for another is a bug and aborts.
  HeadEntries head(std::uint32_t layer, std::uint32_t head) const;
  Plan plan() const;            // entry counts [num_layers, num_heads] at this cut; after wait()
  std::uint64_t bytes() const;  // moved; after wait()
  double seconds() const;       // from request to the last layer checked; after wait()

 private:
  friend class RemoteClient;
  struct Impl;
  explicit Prefix(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Host memory that pushes go out of the fastest: a service on the same host reads it where it is,
// and for any it is registered once and not by every push. Its memory lives as long as the object,
// and so does its client's connection.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  virtual MutableBytes bytes() const = 0;  // from a page's boundary on; zeros at first
};

class Client {
 public:
  // To a running precisd, "host:port". Why not: kUnavailable, kPermissionDenied, kVersionMismatch.
  static Result<std::shared_ptr<Client>> connect(const std::string& address,
                                                 const ConnectOptions& options = {});
  // The whole service inside this process over `directory` (link precis_embedded). kUnavailable if
  // another process has the directory open.
  static Result<std::shared_ptr<Client>> open(const std::string& directory,
                                              const OpenOptions& options = {});
  virtual ~Client() = default;

  // The same client, whose calls (and puts and prefixes) have `deadline_ms`; 0 for none.
  virtual std::shared_ptr<Client> with_deadline(std::uint32_t deadline_ms) = 0;

  // Memory to make KV in, or to copy it to from a device, and to push it from (put.layer()). A few
  // large buffers rather than many: a service of the same host reads some 30 of a client's in place
  // and pulls from the rest. kOutOfSpace if the machine has no such memory.
  virtual Result<std::shared_ptr<HostBuffer>> allocate(std::size_t size_bytes) = 0;

  // `o_proj`: of every layer the output projection [num_q_heads, head_dim, width], contiguous, in
  // any dtype; recipes need it that weigh values by what they write (criticalkv, defensivekv). The
  // service keeps it: once is enough, the same again is fine, another is kInvalidArgument.
  virtual Result<Model> register_model(const ModelSpec& spec,
                                       std::span<const HeadsView> o_proj = {}) = 0;
  virtual Result<std::vector<msg::ModelRow>> models() = 0;

  // Profiles (profile.h), for recipes that take their budgets from one (lukv, headkv). Adding puts
  // it in the place of one with the same model and name.
  virtual Result<msg::ProfileRow> add_profile(const std::string& json) = 0;
  virtual Result<std::vector<msg::ProfileRow>> profiles(std::optional<Digest> model = {}) = 0;
  // With its JSON.
  virtual Result<msg::ProfileRow> profile(const Digest& model, const std::string& name) = 0;
  virtual Status remove_profile(const Digest& model, const std::string& name) = 0;

  // tokens: the whole path from the root; the put is of those past the parent's end.
  virtual Result<Put> begin_put(const Model& model, std::span<const TokenId> tokens,
                                const PutOptions& options = {}) = 0;
  // The longest stored prefix; matched_tokens is 0 when there is none. With options: the longest of
  // what LookupOptions::keep suits, and what a get of it brings, exactly; then also kCorruption, as
  // a get.
  virtual Result<LookupMatch> lookup(const Model& model, std::span<const TokenId> tokens,
                                     const LookupOptions& options = {}) = 0;
  // Begins to stream the prefix; `keep` of each link by itself (a ratio of its tokens, entries per
  // head, bytes), at most what it stores (kInvalidArgument names the first that stores less);
  // Budget::all() for all of it. A match that is counted() has its budget: it is served as it was
  // counted, another `keep` is kInvalidArgument, and kNotFound says that it was trimmed since.
  virtual Result<Prefix> get(const LookupMatch& match, const Budget& keep = Budget::all(),
                             const GetOptions& options = {}) = 0;

  virtual Result<msg::SessionRow> open_session(const std::string& name,
                                               std::optional<std::uint64_t> ttl_seconds) = 0;
  virtual Result<msg::SessionRow> advance_session(const std::string& name,
                                                  const SegmentId& tip) = 0;
  virtual Result<msg::SessionRow> pin_session(const std::string& name, bool pinned) = 0;
  virtual Result<msg::SessionRow> fork_session(const std::string& name,
                                               const std::string& new_name) = 0;
  virtual Result<msg::SessionRow> session(const std::string& name) = 0;
  virtual Result<std::vector<msg::SessionRow>> sessions() = 0;
  virtual Status remove_session(const std::string& name) = 0;

  // The newest first, at most `limit` of them, read a page at a time: what is stored or removed
  // meanwhile may be told or not.
  virtual Result<std::vector<msg::SegmentInfo>> segments(std::optional<Digest> model = {},
                                                         std::uint32_t limit = 1000) = 0;
  virtual Result<msg::SegmentInfo> segment(const SegmentId& id) = 0;
  // The one whose id begins with these hexadecimal digits, without its plan. kNotFound where there
  // is none, kInvalidArgument naming some where there are several.
  virtual Result<msg::SegmentInfo> find_segment(const std::string& id_beginning) = 0;
  virtual Result<msg::Removed> remove_segment(const SegmentId& id, bool recursive) = 0;
  // Reads all of a segment from the store and says what is wrong with it, if anything is.
  virtual Result<msg::Checked> check_segment(const SegmentId& id) = 0;
  // Keeps fewer entries of a segment: those of a put at `keep`, which is at most what it stores.
  // Its id stays, children stay; putting it again gives back what it lost. `dry_run`: says what
  // would be.
  virtual Result<msg::Trimmed> trim_segment(const SegmentId& id, const Budget& keep,
                                            Durability durability = Durability::kWal,
                                            bool dry_run = false) = 0;
  virtual Result<msg::Budgets> budgets(std::optional<Digest> model) = 0;
  // A recipe that needs a profile is set for a model that has one: kNotFound where it has none,
  // kInvalidArgument for all models.
  virtual Result<msg::Budgets> set_budget(const msg::SetBudget& change) = 0;
  virtual Result<msg::Stats> stats() = 0;
  virtual Result<msg::ServerStatus> status() = 0;
};

}  // namespace precis
