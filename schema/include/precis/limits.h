// Every maximum in one place. Exceeding one is a clear error to the caller, never an abort.
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
inline constexpr std::size_t kGramsBytesMax = 128u << 20;  // 128 heads of 512: of one layer
inline constexpr std::uint32_t kBlockTokensMin = 1;
inline constexpr std::uint32_t kBlockTokensMax = 4096;
inline constexpr std::size_t kNameBytesMax = 256;  // model, tenant, session, adapter, salt
inline constexpr std::size_t kRopeScalingBytesMax = 64 * 1024;  // per-channel factors
inline constexpr std::size_t kRecipeBytesMax = 16 * 1024;
inline constexpr std::size_t kProfileBytesMax = 8u << 20;  // 80 layers of 8 heads take 0.6 MB
inline constexpr std::size_t kProfilesPerTenantMax = 64;
inline constexpr std::uint32_t kPoolKernelMax = 1023;  // window attention's pooling width

// Paths and segments.
inline constexpr std::uint32_t kPathTokensMax = 1u << 24;  // positions stay exact as fp32 scores
// Whole blocks of one path that a request may name, at 32 bytes each: as many as the longest path
// has in blocks of 64 tokens.
inline constexpr std::uint32_t kPathBlocksMax = kPathTokensMax / 64;
// Digests of paths in blocks of fewer than 8 tokens, of all that are being looked up or put.
inline constexpr std::size_t kDigestBytesMax = 64u << 20;
inline constexpr std::uint32_t kChainSegmentsMax = 4096;
inline constexpr std::uint64_t kSegmentHeadsMax = std::uint64_t{kLayersMax} * kKvHeadsMax;
// Of a match that is counted: entries of a page, and counts over all of its segments, layers and
// heads, 16 MiB of them: 80 layers of 8 heads in 6,553 segments.
inline constexpr std::uint32_t kAlignMax = 4096;
inline constexpr std::uint64_t kMatchCountsMax = 1u << 22;
inline constexpr std::uint64_t kServedCountsMax =  // of one layer
    std::uint64_t{kChainSegmentsMax} * kKvHeadsMax;
// Leases of matches: how long one lasts, and bytes of memory for what they name, of a tenant and in
// all. A segment of 32 layers of 8 heads takes about 8 KB.
inline constexpr std::uint32_t kLeaseMsMax = 30'000;
inline constexpr std::size_t kLeaseBytesPerTenantMax = 16u << 20;
inline constexpr std::size_t kLeaseBytesMax = 64u << 20;
inline constexpr std::uint32_t kObservationQueriesMax = 1u << 16;  // pushed per head and layer

// Messages. A control message carries at most a path of tokens, its digests and a plan.
inline constexpr std::size_t kMessageBytesMax = 128u << 20;
inline constexpr std::size_t kSendQueueBytesMax = 256u << 20;
inline constexpr std::size_t kHelloBytesMax = 4096;  // of what a stranger says
inline constexpr std::size_t kWelcomeBytesMax = 16 * 1024;
inline constexpr std::size_t kRdmaAddressBytesMax = 512;  // each part of an RdmaTurn
inline constexpr std::size_t kErrorMessageBytesMax = 4096;
inline constexpr std::size_t kTextBytesMax = 4096;        // free text for people: paths, help
inline constexpr std::size_t kCredentialBytesMax = 8192;  // a tenant's token
inline constexpr std::size_t kRegionKeyBytesMax = 4096;   // a transport's access key
static_assert(kMessageBytesMax >= std::size_t{kPathTokensMax} * 4 + (32u << 20));

// Files that a person names; a profile has kProfileBytesMax.
inline constexpr std::size_t kConfigBytesMax = 1u << 20;
inline constexpr std::size_t kTextFileBytesMax = 64u << 20;  // a document to measure recipes on

// The audit log: lines that wait to be written, and bytes of one value in a line.
inline constexpr std::size_t kAuditLinesMax = 8192;
inline constexpr std::size_t kAuditValueBytesMax = 1024;
// Refusals in it: those of one address, kind and outcome that have a line each within a while;
// addresses, kinds and outcomes counted at a time; and bytes of lines a minute, once for clients
// that are not admitted and once for the others.
inline constexpr std::uint32_t kAuditRepeatsToldMax = 8;
inline constexpr std::uint64_t kAuditRepeatMs = 10'000;
inline constexpr std::size_t kAuditRepeatRowsMax = 1024;
inline constexpr std::size_t kAuditMoreLineBytes =
    512;  // what a line counts that says how many more
inline constexpr std::size_t kAuditRefusedBytesPerMinute = 256u << 10;

// A client. Entries of a table of pages; buffers that pages are gathered into, which a client keeps
// between pieces: of a put that pushes ahead, and of the next one.
inline constexpr std::size_t kPageTableMax = std::size_t{1} << 27;
inline constexpr std::size_t kStagingBuffersKeptMax = 6;
inline constexpr std::size_t kStagingBytesKeptMax = std::size_t{1} << 30;
// Calls that do not block: threads of one object, calls that were submitted and whose outcome was
// not taken yet, and token ids that these hold in all.
inline constexpr unsigned kCallThreadsMax = 16;
inline constexpr std::size_t kCallsMax = 4096;
inline constexpr std::size_t kCallTokensMax = std::size_t{1} << 28;

// Service. What is configured of overload stands in cachesvc/base/config.h.
inline constexpr std::uint32_t kConnectionsMax = 1024;
// Connections that are not admitted yet: in all, and from one address. The oldest of the address
// that has most makes room for a new one.
inline constexpr std::uint32_t kStrangersMax = 128;
inline constexpr std::uint32_t kStrangersPerAddressMax = 64;
// Wrong proofs: so many of one address and tenant are answered at once, then each doubles a wait.
inline constexpr std::uint32_t kWrongProofsFree = 4;
inline constexpr std::uint32_t kWrongProofWaitMs = 1000;
inline constexpr std::uint32_t kWrongProofWaitMsMax = 60'000;
inline constexpr std::uint64_t kWrongProofForgetMs = 600'000;  // after the last one
inline constexpr std::size_t kWrongProofRowsMax = 4096;        // addresses and tenants remembered
// A connection may share so many memory files (frames.h, kShare), so many bytes of them, and use so
// many regions at a time.
inline constexpr std::size_t kSharedBuffersMax = 32;
inline constexpr std::size_t kSharedBytesMax = std::size_t{64} << 30;
inline constexpr std::uint32_t kSharedSlotsMax = 4096;
inline constexpr std::uint32_t kPiecesApartMax = 1024;  // of a head that is pushed
inline constexpr std::uint32_t kPutsPerConnectionMax = 64;
inline constexpr std::uint32_t kWritersMax = kConnectionsMax;  // of one put
inline constexpr std::uint32_t kRequestsInFlightPerConnectionMax = 512;
inline constexpr std::uint32_t kGetsPerConnectionMax = 64;
// How long a rejected client is told to wait. Requests and puts: about the time to answer those
// under way. Memory: about the time to compress one layer.
inline constexpr std::uint32_t kRetryAfterRequestsMs = 50;
inline constexpr std::uint32_t kRetryAfterMemoryMs = 500;
// Lists are told in pages: rows of one, and of models, which may have kRopeScalingBytesMax each.
inline constexpr std::uint32_t kListPageRowsMax = 1000;
inline constexpr std::uint32_t kModelPageRowsMax = 64;
inline constexpr std::size_t kCursorBytesMax = 512;  // where the next page begins
// Rows that are looked at for one page: where few of them are asked for, it has fewer than it may.
inline constexpr std::uint32_t kListPageScanMax = 20000;
inline constexpr std::uint32_t kTenantWeightMax = 1000;
inline constexpr std::size_t kModelsPerTenantMax = 1024;
inline constexpr std::size_t kSessionsPerTenantMax = 100000;

// The store's disk. A share is one part in so many of the file system.
inline constexpr std::uint64_t kReserveShare = 16, kPayloadFileShare = 64;
inline constexpr std::uint64_t kReserveBytesMin = 1u << 20, kReserveBytesMax = 64u << 20;
inline constexpr std::uint64_t kPayloadFileBytesMin = 1u << 20, kPayloadFileBytesMax = 256u << 20;
// Files that the store holds open: of payload, of RocksDB's tables, and beside these those that are
// being read or removed, folders, logs and locks.
inline constexpr std::uint32_t kOpenPayloadFilesMax = 128;
inline constexpr std::uint32_t kOpenTableFilesMax = 256;
inline constexpr std::uint32_t kOpenOtherFilesMax = 64;
// Openings of a store whose logs are kept while it is in doubt what they lost.
inline constexpr std::uint32_t kKeptLogFoldersMax = 8;

}  // namespace precis::limits
