// The fixed maxima of the project. Exceeding a maximum is an error for the caller, never an abort.
#pragma once

#include <cstddef>
#include <cstdint>

namespace precis::limits {

// Models.
inline constexpr std::uint32_t kLayersMax = 1024;
inline constexpr std::uint32_t kQHeadsMax = 1024;
inline constexpr std::uint32_t kKvHeadsMax = 1024;
inline constexpr std::uint32_t kHeadDimMax = 1024;
inline constexpr std::uint32_t kHiddenMax = 1u << 17;      // width of an output projection
inline constexpr std::size_t kGramsBytesMax = 128u << 20;  // one layer: 128 heads of 512 x 512 f32
inline constexpr std::uint32_t kBlockTokensMin = 1;
inline constexpr std::uint32_t kBlockTokensMax = 4096;
inline constexpr std::size_t kNameBytesMax = 256;  // model, tenant, session, adapter, salt
inline constexpr std::size_t kRopeScalingBytesMax = 64 * 1024;  // room for per-channel factors
inline constexpr std::size_t kRecipeBytesMax = 16 * 1024;
inline constexpr std::size_t kCommentBytesMax = 1024;  // of a revision of the budgets
inline constexpr std::size_t kBudgetRevisionBytesMax = 8 << 20;
inline constexpr std::size_t kBudgetRevisionsMax = 1000;  // kept per tenant
inline constexpr std::size_t kSessionBudgetsMax = 4096;   // sessions of a tenant with a budget
inline constexpr std::size_t kBudgetTableBytesMax = 1 << 20;
inline constexpr std::size_t kProfileBytesMax = 8u << 20;  // 80 layers of 8 heads: 0.6 to 3 MB
inline constexpr std::size_t kProfilesPerTenantMax = 64;
inline constexpr std::uint32_t kPoolKernelMax = 1023;  // pooling width of window attention

// Paths and segments.
inline constexpr std::uint32_t kPathTokensMax = 1u << 24;  // positions are exact as fp32 scores
// Whole blocks of one path that a request may name; the digest of each takes 32 bytes. The longest
// path has this many blocks of 64 tokens.
inline constexpr std::uint32_t kPathBlocksMax = kPathTokensMax / 64;
// Memory for the digests of paths in blocks of fewer than 8 tokens, over all lookups and puts.
inline constexpr std::size_t kDigestBytesMax = 64u << 20;
inline constexpr std::uint32_t kChainSegmentsMax = 4096;
inline constexpr std::uint64_t kSegmentHeadsMax = std::uint64_t{kLayersMax} * kKvHeadsMax;
// A match with counts: entries per page, and counts over all segments, layers and heads (16 MiB: 80
// layers of 8 heads in 6,553 segments).
inline constexpr std::uint32_t kAlignMax = 4096;
inline constexpr std::uint64_t kMatchCountsMax = 1u << 22;
inline constexpr std::uint64_t kServedCountsMax =  // counts of one layer
    std::uint64_t{kChainSegmentsMax} * kKvHeadsMax;
// Leases of matches: the duration of one lease, and the memory for the leased segments' data, per
// tenant and in total. A segment of 32 layers of 8 heads takes about 8 KB.
inline constexpr std::uint32_t kLeaseMsMax = 30'000;
inline constexpr std::size_t kLeaseBytesPerTenantMax = 16u << 20;
inline constexpr std::size_t kLeaseBytesMax = 64u << 20;
inline constexpr std::uint32_t kObservationQueriesMax = 1u << 16;  // pushed per head and layer

// Clusters. A thousand nodes own 16 or 17 shards each, so their shares differ by a sixteenth.
inline constexpr std::uint32_t kShards = 16'384;
inline constexpr std::uint32_t kClusterNodesMax = 4096;
inline constexpr std::uint32_t kForksMax = 4096;  // 90 bytes each in etcd, which takes 1.5 MB a row

// Messages. The largest control message carries a token path, its digests and a plan.
inline constexpr std::size_t kMessageBytesMax = 128u << 20;
inline constexpr std::size_t kSendQueueBytesMax = 256u << 20;
inline constexpr std::size_t kHelloBytesMax = 4096;  // from a client that is not admitted
inline constexpr std::size_t kWelcomeBytesMax = 16 * 1024;
inline constexpr std::size_t kRdmaAddressBytesMax = 512;  // each part of an RdmaTurn
inline constexpr std::size_t kErrorMessageBytesMax = 4096;
inline constexpr std::size_t kTextBytesMax = 4096;        // free text for people: paths, help
inline constexpr std::size_t kCredentialBytesMax = 8192;  // a tenant's token
inline constexpr std::size_t kRegionKeyBytesMax = 4096;   // a transport's access key
static_assert(kMessageBytesMax >= std::size_t{kPathTokensMax} * 4 + (32u << 20));

// Files that a user names. Profiles have kProfileBytesMax instead.
inline constexpr std::size_t kConfigBytesMax = 1u << 20;

// The audit log: lines that wait to be written, and bytes of one value in a line.
inline constexpr std::size_t kAuditLinesMax = 8192;
inline constexpr std::size_t kAuditValueBytesMax = 1024;
// Refusals in the audit log. kAuditRepeatsToldMax: refusals of one address, kind and outcome that
// get their own lines within kAuditRepeatMs. kAuditRepeatRowsMax: combinations of address, kind and
// outcome that are tracked. kAuditRefusedBytesPerMinute: one allowance for clients that are not
// admitted, one for all others.
inline constexpr std::uint32_t kAuditRepeatsToldMax = 8;
inline constexpr std::uint64_t kAuditRepeatMs = 10'000;
inline constexpr std::size_t kAuditRepeatRowsMax = 1024;
inline constexpr std::size_t kAuditMoreLineBytes = 512;  // counted for a line "and N more"
inline constexpr std::size_t kAuditRefusedBytesPerMinute = 256u << 10;

// Clients. The most entries of a page table; the staging buffers that a client keeps for reuse, for
// the current put and the next.
inline constexpr std::size_t kPageTableMax = std::size_t{1} << 27;
inline constexpr std::size_t kStagingBuffersKeptMax = 6;
inline constexpr std::size_t kStagingBytesKeptMax = std::size_t{1} << 30;
// Non-blocking calls: threads of one Calls object, calls submitted whose result is not taken yet,
// and token ids that those calls hold in total.
inline constexpr unsigned kCallThreadsMax = 16;
inline constexpr std::size_t kCallsMax = 4096;
inline constexpr std::size_t kCallTokensMax = std::size_t{1} << 28;

// Service. Limits that an operator can configure are in cachesvc/base/config.h.
inline constexpr std::uint32_t kConnectionsMax = 1024;
// Connections that are not admitted yet, in total and from one address. When full, the address with
// the most of them loses its oldest to make room.
inline constexpr std::uint32_t kPendingConnectionsMax = 128;
inline constexpr std::uint32_t kPendingConnectionsPerAddressMax = 64;
// Wrong proofs: this many per address and tenant are answered at once; each further one doubles a
// wait.
inline constexpr std::uint32_t kWrongProofsFree = 4;
inline constexpr std::uint32_t kWrongProofWaitMs = 1000;
inline constexpr std::uint32_t kWrongProofWaitMsMax = 60'000;
inline constexpr std::uint64_t kWrongProofExpiryMs = 600'000;  // after the last one
inline constexpr std::size_t kWrongProofRowsMax = 4096;        // pairs of address and tenant
// Per connection: shared memory files (frames.h, kShare), their total bytes, and regions in use at
// the same time.
inline constexpr std::size_t kSharedBuffersMax = 32;
inline constexpr std::size_t kSharedBytesMax = std::size_t{64} << 30;
inline constexpr std::uint32_t kSharedSlotsMax = 4096;
inline constexpr std::uint32_t kPiecesApartMax = 1024;  // separate token ranges of one head
inline constexpr std::uint32_t kPutsPerConnectionMax = 64;
inline constexpr std::uint32_t kWritersMax = kConnectionsMax;  // of one put
inline constexpr std::uint32_t kRequestsInFlightPerConnectionMax = 512;
inline constexpr std::uint32_t kGetsPerConnectionMax = 64;
// The time that a rejected client is told to wait. For requests and puts: about the time to answer
// those in progress. For memory: about the time to compress one layer.
inline constexpr std::uint32_t kRetryAfterRequestsMs = 50;
inline constexpr std::uint32_t kRetryAfterMemoryMs = 500;
// Rows of one page of a list. Model rows are fewer: each may have kRopeScalingBytesMax.
inline constexpr std::uint32_t kListPageRowsMax = 1000;
inline constexpr std::uint32_t kModelPageRowsMax = 64;
inline constexpr std::size_t kCursorBytesMax = 512;  // the position at which the next page begins
// Rows examined for one page. If few of them match the request, the page has fewer rows than its
// limit.
inline constexpr std::uint32_t kListPageScanMax = 20000;
inline constexpr std::uint32_t kTenantWeightMax = 1000;
// Tenants that are stored beside those of the configuration, and valid tokens of each.
inline constexpr std::size_t kStoredTenantsMax = 1000;
inline constexpr std::size_t kTokensPerTenantMax = 2;
inline constexpr std::size_t kModelsPerTenantMax = 1024;
inline constexpr std::size_t kCopiesMax = 8;  // further nodes that serve a match
inline constexpr std::size_t kSessionsPerTenantMax = 100000;

// The admin port. Bodies of all requests together take at most kAdminBodiesBytesMax.
inline constexpr std::uint32_t kAdminConnectionsMax = 64;
inline constexpr std::uint32_t kAdminCallsMax = 64;  // requests that the loop is answering
inline constexpr std::size_t kAdminHeaderBytesMax = 16 * 1024;
inline constexpr std::size_t kAdminBodyBytesMax = kProfileBytesMax + 4096;
inline constexpr std::size_t kAdminBodiesBytesMax = 2 * kAdminBodyBytesMax;
inline constexpr std::uint32_t kAdminHeaderSeconds = 15;  // until a whole header has arrived
inline constexpr std::uint32_t kAdminBodySeconds = 30;
inline constexpr std::uint32_t kAdminAnswerSeconds = 60;  // until the loop has answered
inline constexpr std::uint32_t kAdminSendSeconds = 60;    // until the client has read the answer

// KV events: those that are kept, for each tenant and in all, and the bytes of digests in a page. A
// page has at least one event, which has at most 8 MiB of digests.
inline constexpr std::size_t kEventsPerTenantMax = 1u << 16;
inline constexpr std::size_t kEventBytesPerTenantMax = 8u << 20;
inline constexpr std::size_t kEventBytesMax = 32u << 20;
inline constexpr std::size_t kEventPageBytes = 256u << 10;
inline constexpr std::uint32_t kEventStreamsMax = 16;  // of the admin port
inline constexpr std::uint32_t kEventPollMs = 100;     // a stream looks for new events this often
inline constexpr std::uint32_t kEventHeartbeatSeconds = 15;
inline constexpr int kKvMessagesMax = 1000;  // that wait for one subscriber over ZeroMQ
inline constexpr std::size_t kKvMessageBytesMax = 256u << 10;  // a longer one leaves a gap

// Traces (cachesvc/trace). A traceparent of version 00 has exactly kTraceparentBytesMax characters.
inline constexpr std::size_t kTraceparentBytesMax = 55;
inline constexpr std::size_t kSpansWaitingMax = 4096;
inline constexpr std::size_t kSpansPerPostMax = 512;
inline constexpr std::uint32_t kSpanWaitSeconds = 5;    // until a smaller number is sent
inline constexpr std::uint32_t kSpanPauseSeconds = 60;  // the longest after failures
inline constexpr std::uint32_t kSpanPostSeconds = 10;
inline constexpr std::uint32_t kSpanLastPostSeconds = 1;  // while the process ends
inline constexpr std::size_t kSpanAnswerBytesMax = 64u << 10;

// The store's disk. A share of N is 1/N of the file system.
inline constexpr std::uint64_t kReserveShare = 16, kPayloadFileShare = 64;
inline constexpr std::uint64_t kReserveBytesMin = 1u << 20, kReserveBytesMax = 64u << 20;
inline constexpr std::uint64_t kPayloadFileBytesMin = 1u << 20, kPayloadFileBytesMax = 256u << 20;
// Files that the store holds open: payload files, RocksDB's tables, and others (files being read or
// removed, folders, logs, locks).
inline constexpr std::uint32_t kOpenPayloadFilesMax = 128;
inline constexpr std::uint32_t kOpenTableFilesMax = 256;
inline constexpr std::uint32_t kOpenOtherFilesMax = 64;
// Openings whose RocksDB logs are kept while the store may have lost acknowledged changes.
inline constexpr std::uint32_t kKeptLogFoldersMax = 8;

}  // namespace precis::limits
