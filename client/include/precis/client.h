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
// Nothing throws: every fallible call returns a Status or a Result. All objects share one
// connection to the service; they keep it open and renew it when it is lost. They are thread-safe,
// except that only one thread at a time may use a Put. Every call may fail with kTimedOut,
// kUnavailable or kRejected (see ConnectOptions).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precis/host_buffer.h"
#include "precis/match.h"
#include "precis/messages.h"
#include "precis/operator_client.h"
#include "precis/options.h"
#include "precis/recipe.h"
#include "precis/status.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

class RemoteClient;

// A put in progress. If destroyed before commit, it leaves no trace.
class Put {
 public:
  Put(Put&&) noexcept;
  Put& operator=(Put&&) noexcept;
  ~Put();

  // The service's answer to begin_put(): the tokens to push, the parent, the recipe, the budget.
  const msg::PutBegun& begun() const;

  // Returns once the service holds the bytes; then the caller may reuse the memory. Compression
  // continues in the background; the next call reports its errors (for example a NaN).
  // kInvalidArgument: a wrong shape, dtype or layer, or a piece that overlaps an earlier piece. An
  // error ends the put. If the segment is already stored, pieces are checked and not moved. If the
  // connection is lost before the service accepted a piece, the put is restarted; after that,
  // kUnavailable: begin the put again.
  Status layer(std::uint32_t layer, const LayerPush& push);

  // As layer(), but returns without waiting: the service receives the piece while the caller
  // computes the next ones. The memory that `push` points to must stay unchanged until the piece is
  // over, except pages and the queries that are copied with them. A piece is over after
  // wait_layers(), layer(), commit() or abort(), after an error that ends the put, or after the
  // destructor (which may wait for that). At most kLayersAheadMax pieces are in flight; a further
  // call waits for the oldest. The piece's deadline counts from this call.
  Status start_layer(std::uint32_t layer, const LayerPush& push);
  // Returns once the service holds all started pieces except the last `left`.
  Status wait_layers(std::size_t left = 0);
  static constexpr std::size_t kLayersAheadMax = 4;

  // Once it returns OK, the segment is visible and as durable as asked. kInvalidArgument names the
  // missing layers. If the connection is lost meanwhile, the client asks the service whether the
  // segment is stored. If not, kUnavailable: put again, which is always safe: the same put gives
  // the same segment. Likewise kMoved: another node of the cluster stores this prompt now. After
  // kTimedOut or kCanceled, call commit() again to learn the outcome.
  // `prefill_seconds`: as PutOptions::prefill_seconds; the larger of both counts.
  Result<msg::SegmentInfo> commit(Durability durability = Durability::kWal,
                                  double prefill_seconds = 0);

  // Ends the put. Once this returns OK, the service keeps nothing of it. Also OK if the put has
  // already ended by an error or an abort. kInvalidArgument after a commit.
  Status abort();

 private:
  friend class RemoteClient;
  struct Impl;
  explicit Put(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The kept entries of one (layer, KV head): all arrays [count], K and V [count, head_dim]. If the
// prefix has several segments, the entries stand segment by segment, and within a segment in
// retention order. Seats count within a segment. The Prefix owns the memory.
struct HeadEntries {
  std::span<const std::uint32_t> positions;  // in the original sequence
  std::span<const std::uint32_t> seats;
  std::span<const float> scores;
  HeadsView keys, values;  // of one head
};

// A prefix that is arriving or has arrived. It owns its memory; destroying it early cancels the
// rest of the transfer. The const methods are thread-safe.
class Prefix {
 public:
  Prefix(Prefix&&) noexcept;
  Prefix& operator=(Prefix&&) noexcept;
  ~Prefix();

  const ModelSpec& model() const;
  std::uint32_t matched_tokens() const;
  std::uint32_t num_layers() const;
  std::uint32_t num_heads() const;  // KV heads of a layer that were asked for
  // Waits until the layer has arrived and has been verified. kCorruption if a checksum is wrong.
  Status wait_layer(std::uint32_t layer) const;
  // Waits for all layers.
  Status wait() const;
  // Entries of a layer for which wait_layer() returned OK. `head` counts the heads that were asked
  // for. Any other layer or head is a bug and aborts.
  HeadEntries head(std::uint32_t layer, std::uint32_t head) const;
  Plan plan() const;            // entry counts [num_layers, num_heads] at this cut; after wait()
  std::uint64_t bytes() const;  // transferred; after wait()
  double seconds() const;       // from request to the last layer checked; after wait()

 private:
  friend class RemoteClient;
  struct Impl;
  explicit Prefix(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class Client : public OperatorClient {
 public:
  // Connects to a running precisd, "host:port" or "unix:PATH". For a cluster, name one or several
  // of its nodes: "precis://host:port,host:port/". Errors: kUnavailable, kPermissionDenied,
  // kVersionMismatch.
  static Result<std::shared_ptr<Client>> connect(const std::string& address,
                                                 const ConnectOptions& options = {});
  // Runs the whole service inside this process over `directory` (link precis_embedded).
  // kUnavailable if another process has the directory open.
  static Result<std::shared_ptr<Client>> open(const std::string& directory,
                                              const OpenOptions& options = {});
  // The same client with `deadline_ms` for its calls, puts and prefixes; 0: no deadline.
  virtual std::shared_ptr<Client> with_deadline(std::uint32_t deadline_ms) = 0;

  // Memory to push KV from (Put::layer()). The caller computes KV in it, or copies it there. Prefer
  // a few large buffers: a service on the same host reads about 30 of a client's buffers in place
  // and pulls from the rest. kOutOfSpace if the machine has no such memory.
  virtual Result<std::shared_ptr<HostBuffer>> allocate(std::size_t size_bytes) = 0;

  // `o_proj`: the output projection of every layer, [num_q_heads, head_dim, width], contiguous, any
  // dtype. Recipes that use the norms of projected values need it (criticalkv, defensivekv). The
  // service keeps it, so one push is enough. Pushing the same again is allowed; pushing another is
  // kInvalidArgument.
  virtual Result<Model> register_model(const ModelSpec& spec,
                                       std::span<const HeadsView> o_proj = {}) = 0;
  virtual Result<std::vector<msg::ModelRow>> models() = 0;
  // Removes a model with its projections, profiles and budgets. kConflict, with their number, while
  // segments of it are stored.
  virtual Status remove_model(const Digest& fingerprint) = 0;

  // Profiles (profile.h), for recipes that take a scorer or head budgets from one (global_kvprobe,
  // lukv). A new profile replaces the profile with the same model and name.
  virtual Result<msg::ProfileRow> add_profile(const std::string& json) = 0;
  virtual Result<std::vector<msg::ProfileRow>> profiles(std::optional<Digest> model = {}) = 0;
  // The row includes the profile's JSON.
  virtual Result<msg::ProfileRow> profile(const Digest& model, const std::string& name) = 0;
  virtual Status remove_profile(const Digest& model, const std::string& name) = 0;

  // `tokens`: the whole path from the root. The put covers the tokens after the parent's end.
  virtual Result<Put> begin_put(const Model& model, std::span<const TokenId> tokens,
                                const PutOptions& options = {}) = 0;
  // The longest stored prefix; matched_tokens is 0 if there is none. With LookupOptions::keep or
  // align: the longest prefix that suits them, with exact counts of the entries that a get
  // transfers. Such a lookup may read layers, so it may fail with kCorruption as get() does.
  virtual Result<LookupMatch> lookup(const Model& model, std::span<const TokenId> tokens,
                                     const LookupOptions& options = {}) = 0;
  // Starts to stream the prefix. `keep` (a ratio of tokens, entries per head, bytes) applies to
  // each segment of the match separately; kInvalidArgument names the first segment that stores
  // less. Budget::all() reads all stored entries. A counted() match is served as it was counted:
  // any `keep` except all is kInvalidArgument, and kNotFound means that a segment was trimmed
  // since.
  virtual Result<Prefix> get(const LookupMatch& match, const Budget& keep = Budget::all(),
                             const GetOptions& options = {}) = 0;

  // `total`: the most that the session's segments may take together, as a ratio of their full KV or
  // in bytes; Budget::all(): no limit.
  virtual Result<msg::SessionRow> open_session(const std::string& name,
                                               std::optional<std::uint64_t> ttl_seconds,
                                               std::optional<Budget> total = {}) = 0;
  virtual Result<msg::SessionRow> advance_session(const std::string& name,
                                                  const SegmentId& tip) = 0;
  virtual Result<msg::SessionRow> pin_session(const std::string& name, bool pinned) = 0;
  virtual Result<msg::SessionRow> fork_session(const std::string& name,
                                               const std::string& new_name) = 0;
  virtual Result<msg::SessionRow> session(const std::string& name) = 0;
  virtual Result<std::vector<msg::SessionRow>> sessions() = 0;
  virtual Status remove_session(const std::string& name) = 0;
};

}  // namespace precis
