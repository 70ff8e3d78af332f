// Stored rows: the frame that tells damaged rows from newer ones, and the kinds of row
// (catalog.capnp).
#include "precis/catalog_row.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "capnp_edge.h"
#include "precis/limits.h"
#include "wire_catalog.h"

namespace precis {
namespace {

// A row of a model has one version, for its element type and its windows.
static_assert(kWindowsVersion > kFormVersion);

// The frame; catalog.capnp draws it.
constexpr std::uint32_t kRowMagic = 0x52435250;  // "PRCR"
constexpr std::size_t kRowHeaderBytes = 24;
constexpr std::size_t kRowHashOffset = 8;
enum class RowKind : std::uint16_t {
  kSegment = 1,
  kSession = 2,
  kModel = 3,
  kBudget = 4,
  kProjection = 5,
  kProfile = 6,
  kRevision = 7,
  kTenant = 8
};

struct RowPrefix {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
};
static_assert(sizeof(RowPrefix) == kRowHashOffset);
static_assert(kRowHashOffset + sizeof(XXH128_canonical_t) == kRowHeaderBytes);

// Hash of the whole frame except the hash itself.
XXH128_canonical_t frame_hash(Bytes frame) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, frame.data(), kRowHashOffset);
  XXH3_128bits_update(&state, frame.data() + kRowHeaderBytes, frame.size() - kRowHeaderBytes);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  return canonical;
}

template <typename Wire, typename T>
std::vector<std::byte> encode_row(RowKind kind, std::uint32_t version, const T& row) {
  MessageWriter message;
  write(message.root<Wire>(), row);
  std::vector<std::byte> frame = message.take(kRowHeaderBytes);
  const RowPrefix prefix{kRowMagic, static_cast<std::uint16_t>(version),
                         static_cast<std::uint16_t>(kind)};
  std::memcpy(frame.data(), &prefix, sizeof prefix);
  const XXH128_canonical_t hash = frame_hash(frame);
  std::memcpy(frame.data() + kRowHashOffset, &hash, sizeof hash);
  return frame;
}

Status check_frame(std::string_view what, RowKind kind, Bytes frame) {
  const auto refuse = [&](const std::string& why) {
    return Status::corruption(std::string(what) + ": " + why);
  };
  if (frame.size() < kRowHeaderBytes) {
    return refuse(std::to_string(frame.size()) + " bytes are less than a header");
  }
  RowPrefix prefix;
  std::memcpy(&prefix, frame.data(), sizeof prefix);
  if (prefix.magic != kRowMagic) return refuse("magic is " + std::to_string(prefix.magic));
  const XXH128_canonical_t hash = frame_hash(frame);
  if (std::memcmp(&hash, frame.data() + kRowHashOffset, sizeof hash) != 0) {
    return refuse("checksum differs over " + std::to_string(frame.size()) + " bytes");
  }
  if (prefix.version > kRowVersion) {
    return Status::version(std::string(what) + ": format version is " +
                           std::to_string(prefix.version) + ", this build reads up to " +
                           std::to_string(kRowVersion));
  }
  if (prefix.version == 0) return refuse("format version is 0");
  if (prefix.kind != static_cast<std::uint16_t>(kind)) {
    return refuse("kind is " + std::to_string(prefix.kind) + ", must be " +
                  std::to_string(static_cast<std::uint16_t>(kind)));
  }
  return {};
}

constexpr std::uint32_t kOtherRows = encoding_version(Encoding::kRaw);

// Builds that do not know windows must not read a model that has some.
std::uint32_t version_of(const ModelSpec& model) {
  return model.windows.empty() ? dtype_version(model.dtype) : kWindowsVersion;
}

template <typename Wire, typename T>
Result<T> decode_row(std::string_view what, RowKind kind, Bytes frame) {
  PRECIS_TRY(check_frame(what, kind, frame));
  Result<T> row =
      decode_root<Wire, T>(what, frame.subspan(kRowHeaderBytes), limits::kMessageBytesMax);
  // The checksum was right, so the writer is at fault if content is out of range, not the caller.
  if (!row.ok()) return Status::corruption(row.status().message());
  return row;
}

}  // namespace

std::vector<std::byte> encode(const SegmentRow& row) {
  return encode(row, encoding_version(row.encoding));
}
std::vector<std::byte> encode(const SegmentRow& row, std::uint32_t version) {
  return encode_row<wire::SegmentRow>(RowKind::kSegment, version, row);
}
std::vector<std::byte> encode(const StoredSession& row) {
  return encode_row<wire::StoredSession>(RowKind::kSession, kOtherRows, row);
}
std::vector<std::byte> encode(const StoredModel& row) {
  return encode_row<wire::StoredModel>(RowKind::kModel, version_of(row.model), row);
}
std::vector<std::byte> encode(const StoredBudget& row) {
  return encode_row<wire::StoredBudget>(RowKind::kBudget, kOtherRows, row);
}
std::vector<std::byte> encode(const StoredProjection& row) {
  return encode_row<wire::StoredProjection>(RowKind::kProjection, kOtherRows, row);
}
std::vector<std::byte> encode(const StoredProfile& row) {
  return encode_row<wire::StoredProfile>(RowKind::kProfile, kOtherRows, row);
}

std::vector<std::byte> encode(const StoredRevision& row) {
  return encode_row<wire::StoredRevision>(RowKind::kRevision, kOtherRows, row);
}
std::vector<std::byte> encode(const StoredTenant& row) {
  return encode_row<wire::StoredTenant>(RowKind::kTenant, kOtherRows, row);
}

Result<SegmentRow> decode_segment_row(Bytes bytes) {
  return decode_row<wire::SegmentRow, SegmentRow>("segment row", RowKind::kSegment, bytes);
}
Result<StoredSession> decode_stored_session(Bytes bytes) {
  return decode_row<wire::StoredSession, StoredSession>("session row", RowKind::kSession, bytes);
}
Result<StoredModel> decode_stored_model(Bytes bytes) {
  return decode_row<wire::StoredModel, StoredModel>("model row", RowKind::kModel, bytes);
}
Result<StoredBudget> decode_stored_budget(Bytes bytes) {
  return decode_row<wire::StoredBudget, StoredBudget>("budget row", RowKind::kBudget, bytes);
}
Result<StoredProjection> decode_stored_projection(Bytes bytes) {
  return decode_row<wire::StoredProjection, StoredProjection>("projection row",
                                                              RowKind::kProjection, bytes);
}
Result<StoredProfile> decode_stored_profile(Bytes bytes) {
  return decode_row<wire::StoredProfile, StoredProfile>("profile row", RowKind::kProfile, bytes);
}

Result<StoredRevision> decode_stored_revision(Bytes bytes) {
  return decode_row<wire::StoredRevision, StoredRevision>("revision row", RowKind::kRevision,
                                                          bytes);
}
Result<StoredTenant> decode_stored_tenant(Bytes bytes) {
  return decode_row<wire::StoredTenant, StoredTenant>("tenant row", RowKind::kTenant, bytes);
}

bool same_put(const SegmentRow& row, const SegmentRow& other) {
  SegmentRow as_other = row;
  as_other.plan = other.plan;
  as_other.layer_bytes = other.layer_bytes;
  as_other.stored_bytes = other.stored_bytes;
  as_other.hits = other.hits;
  as_other.last_used_unix_ms = other.last_used_unix_ms;
  as_other.priority = other.priority;
  as_other.ttl_seconds = other.ttl_seconds;
  as_other.expected_unix_ms = other.expected_unix_ms;
  as_other.trimmed = other.trimmed;
  as_other.whole_entries = other.whole_entries;
  return as_other == other;
}

}  // namespace precis
