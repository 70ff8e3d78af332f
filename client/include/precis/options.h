// What a program tells the client beside the data: how to connect, what to put and push. Part of
// client.h, which includes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "precis/pages.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

struct ConnectOptions {
  std::string tenant;  // empty: the service's default tenant
  std::string token;   // never travels: the client proves that it knows it
  // TLS: who may sign the service's certificate, a PEM file or "system"; empty: no TLS. For mutual
  // TLS also the client's own certificate and key, PEM files.
  std::string tls_ca, tls_cert, tls_key;
  // Whether a service of the same host may read and write the memory that gets arrive in, and that
  // Client::allocate() gives, where it lies. It is the faster way; off, all bytes go over sockets.
  bool share_memory = true;
  // Whether a service of another host may do the same by RDMA: "auto" (where this host has a device
  // and the service offers it; never with TLS, for it is not encrypted), "off", or the devices that
  // may be used, with commas: "mlx5_0:1".
  std::string rdma = "auto";
  // Of connecting and of each request, which then is kTimedOut. Requests that move or compress
  // bytes (begin_put, layer, commit, get, check_segment, trim_segment, a lookup with options) take
  // what they take: they time out when the service has been silent this long, and a quiet one is
  // asked for a sign of life meanwhile.
  std::uint32_t timeout_ms = 10'000;
  // Of each call as a whole, with its retries, and of a get up to its last layer: past it the call
  // is kTimedOut, naming what it waited for. 0: none. Client::with_deadline() sets it for some.
  std::uint32_t deadline_ms = 0;
  // Whether a call that finds the connection lost (the service was restarted, say) connects anew,
  // and one that the service is too busy for (kRejected with retry_after_ms()) comes again, until
  // its deadline, or without one for timeout_ms from its first failure. A call that was under way
  // when the connection was lost is repeated where done twice is as done once: all but
  // fork_session, set_budget, remove_*, and puts of which a layer was taken in, which must be put
  // again.
  bool retry = true;
  std::string client_name;  // name and version, for the service's log; empty: this library's
};

struct OpenOptions {
  std::uint64_t memory_bytes = 0;  // 0: the service's default
  unsigned threads = 0;            // 0: every core
  std::string device = "auto";     // compresses: auto (a GPU where there is one), cpu or cuda:N
};

// A registered model, to be named in puts and lookups. `adapter`: LoRA or the like.
struct Model {
  ModelSpec spec;
  Digest fingerprint;
  std::string adapter;
};

struct PutOptions {
  std::string recipe;          // empty: the budget in force says
  std::optional<Budget> keep;  // none: the budget in force says
  // Where the new segment begins: nothing means at the end of the longest stored proper prefix
  // that suits a reader at `parent_read` (LookupOptions::keep); a null SegmentId means at the root;
  // any other is the parent.
  std::optional<SegmentId> parent;
  // Provenance: the budget at which the parent was read while this KV was computed; nothing means
  // all that was stored. Where that is less than what is stored of the parents, the segment is an
  // approximation, and only readers at such a budget find it.
  std::optional<Budget> parent_read;
  // Connections that write the put together, tensor-parallel ranks say, each its part of every
  // layer: all of them begin it alike, push, and commit. A commit returns once all have asked for
  // it, to all with one outcome (so give calls a deadline), and the strongest durability that was
  // asked for counts. Where one of them aborts it, or is gone, the rest get kUnavailable: put
  // again.
  std::uint32_t writers = 1;
};

// What a lookup says of the prefix that it finds. With neither: what is stored, and nothing is read
// for it. Else the service counts what a get brings, to the entry, before anything travels: `plan`
// and `bytes` of the match are exact then, for memory to be set aside, and get() of that match,
// without a budget, serves exactly that. What of it is cold is read for it.
struct LookupOptions {
  // As get()'s, but that a link that stores less is taken whole, which is no error. No quality.
  // A reader at a ratio gets no segment that was computed over less of its parents than that ratio
  // (95% of it counts as enough); any other budget asks for all. Without keep and align none is
  // left out, and SegmentInfo::parent_read tells.
  std::optional<Budget> keep{};
  // Entries of a page of the reader's memory, 1 to 4096. Above 1 every (layer, KV head) gets the
  // nearest multiple of it, over all links; at least one page, at most what is stored in whole
  // pages, so nothing where that is less than a page. The last link gives or takes the difference,
  // and as far as it can't, the ones before it.
  std::uint32_t align = 1;
  // What is found can be got for so long, whatever is removed, trimmed or replaced meanwhile. At
  // most 30 s; what LookupMatch::lease_ms says was granted, 0 where the service has no room for it,
  // or has restarted since. Below zero is kInvalidArgument.
  std::chrono::milliseconds lease{0};
};

// One layer, or a piece of it. keys, values: [num_kv_heads, n, head_dim] of the model's dtype, keys
// post-RoPE, over the put's new tokens [begin, end). A tensor-parallel rank pushes its heads from
// head_begin; chunked prefill pushes token blocks from token_begin, counted from `begin`. Where
// begin > 0, keys and values (and scores) of all `end` tokens of the path are taken too, as an
// engine's own cache holds them: their last end - begin tokens are pushed.
struct LayerPush {
  HeadsView keys, values;
  // [num_q_heads of these heads, m, head_dim], the last m tokens; for kvzip any that repeat them.
  HeadsView queries;
  std::span<const float> lse;     // [num_q_heads of these heads, m]; needs queries
  std::span<const float> scores;  // [num_kv_heads of these heads, n], for external scorers
  std::uint32_t head_begin = 0, token_begin = 0;
  // Of queries to come, for expected_attention: [num_q_heads of these heads, head_dim] and
  // [num_q_heads of these heads, head_dim, head_dim].
  std::span<const float> query_mean, query_covariance;
  // Keys and values in pages, in place of the views. They and the queries are copied before the
  // push is under way (the copy is the only one where a service of the same host reads them), and
  // may be reused as soon as the call returns.
  std::optional<PagesIn> pages = std::nullopt;
};

// Memory of the caller's for the K or the V of one layer: [num_kv_heads, num_tokens, head_dim] of
// the model's dtype; rows follow each other, heads may stand apart, as in a HeadsView.
struct RowsOut {
  std::byte* data = nullptr;
  std::uint32_t num_heads = 0;
  std::uint32_t num_tokens = 0;  // that a head has room for
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
  std::size_t head_stride_bytes = 0;
};
// Where a get leaves one layer. Of head h, the first head(layer, h).positions.size() rows are
// written, in that order; the rest stay as they were.
struct LayerOut {
  RowsOut keys, values;
};

// What of a prefix a get brings, and where it leaves it.
struct GetOptions {
  // [num_layers] and pages: rows are left there, too. A layer is written by the wait_layer() or
  // wait() that first says OK to it, in the calling thread and after its checksums held; nothing
  // else ever touches that memory, so it must live as long as the Prefix is waited for. What lies
  // past a head's rows stays as it was. kInvalidArgument: another shape or dtype than that of the
  // heads asked for, pages that are not there, or, by those waits, a head that kept more rows than
  // there is room for (match.plan says how many it may be).
  std::span<const LayerOut> out = {};
  // KV heads [head_begin, head_begin + head_count) alone are read, travel and are checked; count 0:
  // all from head_begin on. The prefix then has those heads, the first of them as its head 0.
  std::uint32_t head_begin = 0, head_count = 0;
  std::optional<PagesOut> pages = std::nullopt;  // its table is copied
};

}  // namespace precis
