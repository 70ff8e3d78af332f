// Options of the client's calls: how to connect, what to put and push. Part of client.h, which
// includes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "precis/messages.h"
#include "precis/pages.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

struct ConnectOptions {
  std::string tenant;  // empty: the service's default tenant
  std::string token;   // never sent: the client proves that it knows it
  // TLS: `tls_ca` names the authority that signs the service's certificate, a PEM file or "system";
  // empty: no TLS. `tls_cert` and `tls_key`, PEM files: the client's own, for mutual TLS.
  std::string tls_ca, tls_cert, tls_key;
  // Whether a service on the same host may read and write the memory of gets and of
  // Client::allocate() in place, which is faster. If off, all bytes go over sockets.
  bool share_memory = true;
  // Whether a service on another host may do the same by RDMA. "auto": if this host has a device
  // and the service offers RDMA, but never with TLS, because RDMA is not encrypted. "off": no.
  // Otherwise the permitted devices, separated by commas, for example "mlx5_0:1".
  std::string rdma = "auto";
  // Timeout of connecting and of each request, after which it fails with kTimedOut. Requests that
  // move or compress bytes (begin_put, layer, commit, get, check_segment, trim_segment, a lookup
  // with keep or align) may take longer: they time out when the service has been silent this long.
  // The client pings a silent service before that.
  std::uint32_t timeout_ms = 10'000;
  // Deadline of each call with its retries, and of a get up to its last layer. After it the call
  // fails with kTimedOut and says what it waited for. 0: none. Client::with_deadline() makes a
  // client with another deadline.
  std::uint32_t deadline_ms = 0;
  // Whether calls are retried. A call that finds the connection lost (for example after a restart
  // of the service) connects again. A call that is refused with a time to try again
  // (Status::retry_after_ms()) is sent again. Retries end at the call's deadline or, without a
  // deadline, timeout_ms after the first failure. If the connection is lost while a call is in
  // flight, the call is repeated if it is idempotent. fork_session, set_budget, remove_* and a put
  // of which the service accepted a layer are not repeated: begin such a put again.
  bool retry = true;
  std::string client_name;  // name and version, for the service's log; empty: this library's
  // For pages on CUDA devices (pages.h): kernels::make_cuda_page_mover of page_mover.h, in the
  // library precis_device. Null: such pages are kUnsupported.
  MakePageMover page_mover = nullptr;
};

struct OpenOptions {
  std::uint64_t memory_bytes = 0;    // 0: the service's default
  std::uint64_t max_disk_bytes = 0;  // of stored records; 0: only the disk is a limit
  unsigned threads = 0;              // 0: one per core
  std::string device = "auto";       // for compression: auto (a GPU if there is one), cpu or cuda:N
  MakePageMover page_mover = nullptr;  // as in ConnectOptions
};

// A registered model, named in puts and lookups. `adapter`: a LoRA adapter or similar.
struct Model {
  ModelSpec spec;
  Digest fingerprint;
  std::string adapter;
};

struct PutOptions {
  std::string recipe;          // empty: that of the budget in force
  std::optional<Budget> keep;  // none: that of the budget in force
  // The parent. Not set: the longest stored proper prefix that suits a reader at `parent_read`
  // (LookupOptions::keep); the service may split a segment for it. A null SegmentId: the root.
  // Otherwise: this segment.
  std::optional<SegmentId> parent;
  // Provenance: the budget at which the parent was read while this KV was computed. Not set: all
  // stored entries were read. If the parents store more, the segment is an approximation: only
  // lookups with such a `keep`, or without one, find it.
  std::optional<Budget> parent_read;
  // The number of connections that write the put together, for example tensor-parallel ranks. Each
  // pushes its part of every layer. All of them begin the put with the same arguments, push, and
  // commit. A commit returns once all writers have committed (so give calls a deadline), with the
  // same outcome for all and the strongest durability that any of them asked for. If one aborts or
  // disconnects, the others get kUnavailable: put again.
  std::uint32_t writers = 1;
  // The new segment begins at this token, if that is not the end of `parent`: a block boundary
  // inside the parent or an ancestor, which the service splits there. 0: at the parent's end.
  std::uint32_t parent_end = 0;
  // How long the segment is worth keeping when the service is short of space, also if it is stored
  // already.
  msg::Hints hints{};
  // The session that the put continues: its budget and limit apply (OperatorClient::set_budget()).
  // kNotFound if there is no such session. Empty: none. The put does not advance it.
  std::string session{};
  // How long the prefill of the new tokens took, if that is known already (Put::commit()). Segments
  // that are cheap to compute again are dropped first when the service is short of space. 0:
  // unknown.
  double prefill_seconds = 0;
  // The caller's span in its trace, in the form of W3C Trace Context's header `traceparent`. The
  // service ignores, and counts, a value of another form. At most 55 bytes are sent.
  std::string traceparent{};
};

// Options of a lookup. Without keep and align, the lookup reports the stored segments and reads no
// payload. With either, the service counts the entries that a get would transfer, and reads layers
// from the disk for that if they are not in memory. `plan` and `bytes` of the match are then exact,
// so that memory can be reserved, and get() of that match, without a budget, serves exactly those
// entries.
struct LookupOptions {
  // As get()'s `keep`, but a segment that stores less is matched whole, without an error. Not a
  // loss. With a ratio, no segment is matched that was computed over less of its parents'
  // entries than that ratio (95% of it is enough); with any other budget, it must have been
  // computed over all of them. Without keep and align no segment is left out;
  // SegmentInfo::parent_read says over how much it was computed.
  std::optional<Budget> keep{};
  // Entries per page of the reader's memory, 1 to 4096. Above 1, the count of every (layer, KV
  // head) over all segments is rounded to the nearest multiple: at least one page, at most the
  // whole pages that are stored, and so 0 if less than a page is stored. The last segment absorbs
  // the difference, then the segments before it.
  std::uint32_t align = 1;
  // How long get() can read the match even if its segments are removed, trimmed or replaced
  // meanwhile. At most 30 s. LookupMatch::lease_ms is the time that the service granted; 0 if it
  // has no room for the lease. A negative value is kInvalidArgument.
  std::chrono::milliseconds lease{0};
  // For all segments of the match: how long they are worth keeping when the service is short of
  // space.
  msg::Hints hints{};
  std::string traceparent{};  // as of a put
  // The session that the path continues: its TTL restarts. kNotFound if there is no such
  // session. Empty: none.
  std::string session{};
};

// One layer, or a piece of it. keys, values: [num_kv_heads, n, head_dim] of the model's dtype, keys
// post-RoPE, over the put's new tokens [begin, end). A tensor-parallel rank pushes its heads from
// head_begin; chunked prefill pushes token blocks from token_begin, which counts from `begin`. If
// begin > 0, keys, values and scores may also cover all `end` tokens of the path, as in an engine's
// own cache: the last end - begin of them are pushed.
struct LayerPush {
  HeadsView keys, values;
  // [query heads of these KV heads, m, head_dim], of the put's last m tokens; for kvzip, of tokens
  // that follow the put and repeat it.
  HeadsView queries;
  std::span<const float> lse;     // [query heads of these KV heads, m]; needs queries
  std::span<const float> scores;  // [num_kv_heads, n] of these heads, for external scorers
  std::uint32_t head_begin = 0, token_begin = 0;
  // Statistics of future queries, for expected_attention: [query heads of these KV heads, head_dim]
  // and [query heads of these KV heads, head_dim, head_dim].
  std::span<const float> query_mean, query_covariance;
  // Keys and values in pages, instead of the views. The client copies these rows and the queries
  // before the call returns; then the caller may reuse them. A service on the same host reads the
  // client's copy in place.
  std::optional<PagesIn> pages = std::nullopt;
};

// The caller's memory for K or V of one layer: [num_kv_heads, num_tokens, head_dim] of the model's
// dtype. The rows of a head are contiguous; there may be gaps between heads, as in a HeadsView.
struct RowsOut {
  std::byte* data = nullptr;
  std::uint32_t num_heads = 0;
  std::uint32_t num_tokens = 0;  // capacity of a head
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
  std::size_t head_stride_bytes = 0;
};
// The destination of one layer of a get. The first head(layer, h).positions.size() rows of head h
// are written, in that order; the other rows are not touched.
struct LayerOut {
  RowsOut keys, values;
};

// Selects the part of a prefix that a get transfers, and its destination.
struct GetOptions {
  // Rows are also written to `out` [num_layers] and to pages. A layer is written by the first
  // wait_layer() or wait() that returns OK for it, in the calling thread, after its checksums were
  // verified. Nothing else writes to that memory, so it must live until the last such wait has
  // returned. Memory after a head's rows is not touched. kInvalidArgument: a shape or dtype that
  // does not fit the heads asked for, or pages that do not exist; from the waits also a head with
  // more rows than there is room for (match.plan has the maximum).
  std::span<const LayerOut> out = {};
  // Only KV heads [head_begin, head_begin + head_count) are read, transferred and checked; count 0:
  // all from head_begin on. The prefix then has only those heads, numbered from 0.
  std::uint32_t head_begin = 0, head_count = 0;
  std::optional<PagesOut> pages = std::nullopt;  // the table is copied
  std::string traceparent = {};                  // as of a put
};

}  // namespace precis
