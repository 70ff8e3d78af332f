// Stored rows: the frame that tells damaged rows from newer ones, and the kinds of row
// (catalog.capnp).
#include "precis/catalog_row.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "capnp_edge.h"
#include "catalog.capnp.h"
#include "precis/limits.h"
#include "wire_fields.h"
#include "wire_nouns.h"

namespace precis {
namespace {

// The frame; catalog.capnp draws it.
constexpr std::uint32_t kRowMagic = 0x52435250;  // "PRCR"
constexpr std::uint32_t kRowVersion = 1;
constexpr std::size_t kRowHeaderBytes = 24;
constexpr std::size_t kRowHashOffset = 8;
enum class RowKind : std::uint16_t {
  kSegment = 1,
  kSession = 2,
  kModel = 3,
  kBudget = 4,
  kProjection = 5,
  kProfile = 6
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

template <typename Wire, typename T>
Result<T> decode_row(std::string_view what, RowKind kind, Bytes frame) {
  PRECIS_TRY(check_frame(what, kind, frame));
  Result<T> row =
      decode_root<Wire, T>(what, frame.subspan(kRowHeaderBytes), limits::kMessageBytesMax);
  // The checksum was right, so content out of range is a fault of the writer, not of the caller.
  if (!row.ok()) return Status::corruption(row.status().message());
  return row;
}

}  // namespace

namespace wire {

static void write(SegmentRow::Builder out, const precis::SegmentRow& in) {
  out.setId(as_data(in.id));
  out.setParent(as_data(in.parent));
  out.setTenant(as_text(in.tenant));
  out.setModel(as_data(in.model));
  out.setAdapter(as_text(in.adapter));
  out.setBegin(in.begin);
  out.setEnd(in.end);
  out.setRoot(as_data(in.root));
  out.setTip(as_data(in.tip));
  out.setBlocks(as_data(in.blocks));
  out.setTail(as_data(in.tail));
  out.setRecipe(as_text(in.recipe));
  out.setPreset(as_text(in.preset));
  write(out.initBudget(), in.budget);
  if (in.parent_read) write(out.initParentRead(), *in.parent_read);
  write(out.initPlan(), in.plan);
  out.setLayerBytes(as_data(in.layer_bytes));
  out.setOriginalBytes(in.original_bytes);
  out.setStoredBytes(in.stored_bytes);
  out.setCompressSeconds(in.compress_seconds);
  out.setCreatedUnixMs(in.created_unix_ms);
  out.setHits(in.hits);
  if (in.trimmed) write(out.initTrimmed(), *in.trimmed);
  out.setParentEntries(in.parent_entries);
}

static Status read_path(SegmentRow::Reader in, precis::SegmentRow& out) {
  out.begin = in.getBegin();
  out.end = in.getEnd();
  PRECIS_TRY(check_token_range("end", out.begin, out.end));
  PRECIS_TRY(read_digest("root", in.getRoot(), out.root));
  PRECIS_TRY(read_digest("tip", in.getTip(), out.tip));
  PRECIS_TRY(read_array("blocks", in.getBlocks(), limits::kPathTokensMax, out.blocks));
  return read_array("tail", in.getTail(), limits::kBlockTokensMax, out.tail);
}

static Status read(SegmentRow::Reader in, precis::SegmentRow& out) {
  PRECIS_TRY(read_segment_id("id", in.getId(), out.id));
  PRECIS_TRY(read_segment_id("parent", in.getParent(), out.parent));
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  PRECIS_TRY(read_name("adapter", in.getAdapter(), out.adapter));
  PRECIS_TRY(read_path(in, out));
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  PRECIS_TRY(read_name("preset", in.getPreset(), out.preset));
  PRECIS_TRY(read(in.getBudget(), out.budget).with_context("budget"));
  PRECIS_TRY(read_optional(in.hasParentRead(), "parent_read", in.getParentRead(), out.parent_read));
  PRECIS_TRY(read(in.getPlan(), out.plan).with_context("plan"));
  PRECIS_TRY(read_array("layer_bytes", in.getLayerBytes(), limits::kLayersMax, out.layer_bytes));
  if (out.layer_bytes.size() != out.plan.num_layers) {
    return field_error("layer_bytes", "has " + std::to_string(out.layer_bytes.size()) +
                                          " elements for " + std::to_string(out.plan.num_layers) +
                                          " layers");
  }
  out.original_bytes = in.getOriginalBytes();
  out.stored_bytes = in.getStoredBytes();
  out.compress_seconds = in.getCompressSeconds();
  out.created_unix_ms = in.getCreatedUnixMs();
  out.hits = in.getHits();
  out.parent_entries = in.getParentEntries();
  return read_optional(in.hasTrimmed(), "trimmed", in.getTrimmed(), out.trimmed);
}

static void write(StoredSession::Builder out, const precis::StoredSession& in) {
  out.setTenant(as_text(in.tenant));
  write(out.initRow(), in.row);
}
static Status read(StoredSession::Reader in, precis::StoredSession& out) {
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  return read(in.getRow(), out.row);
}

static void write(StoredModel::Builder out, const precis::StoredModel& in) {
  out.setTenant(as_text(in.tenant));
  write(out.initModel(), in.model);
}
static Status read(StoredModel::Reader in, precis::StoredModel& out) {
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  return read(in.getModel(), out.model);
}

static void write(StoredBudget::Builder out, const precis::StoredBudget& in) {
  out.setTenant(as_text(in.tenant));
  if (in.model) out.setModel(as_data(*in.model));
  out.setRecipe(as_text(in.recipe));
  if (in.keep) write(out.initKeep(), *in.keep);
  out.setVersion(in.version);
  out.setSetUnixMs(in.set_unix_ms);
}
static Status read(StoredBudget::Reader in, precis::StoredBudget& out) {
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  if (in.hasModel()) PRECIS_TRY(read_digest("model", in.getModel(), out.model.emplace()));
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  PRECIS_TRY(read_optional(in.hasKeep(), "keep", in.getKeep(), out.keep));
  out.version = in.getVersion();
  out.set_unix_ms = in.getSetUnixMs();
  return {};
}

static void write(StoredProjection::Builder out, const precis::StoredProjection& in) {
  out.setTenant(as_text(in.tenant));
  out.setModel(as_data(in.model));
  out.setLayer(in.layer);
  out.setWidth(in.width);
  out.setDtype(static_cast<Dtype>(in.dtype));
  out.setWeightsBytes(in.weights_bytes);
  out.setGramsBytes(in.grams_bytes);
  out.setWeights(as_data(in.weights));
  out.setGrams(as_data(in.grams));
}
static Status read(StoredProjection::Reader in, precis::StoredProjection& out) {
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  out.layer = in.getLayer();
  out.width = in.getWidth();
  PRECIS_TRY(check_max("layer", out.layer, limits::kLayersMax - 1));
  PRECIS_TRY(check_max("width", out.width, limits::kHiddenMax));
  PRECIS_TRY(read_enum("dtype", in.getDtype(), precis::Dtype::kF32, out.dtype));
  out.weights_bytes = in.getWeightsBytes();
  out.grams_bytes = in.getGramsBytes();
  PRECIS_TRY(read_digest("weights", in.getWeights(), out.weights));
  return read_digest("grams", in.getGrams(), out.grams);
}

static void write(StoredProfile::Builder out, const precis::StoredProfile& in) {
  out.setTenant(as_text(in.tenant));
  out.setJson(as_text(in.json));
  out.setAddedUnixMs(in.added_unix_ms);
}
static Status read(StoredProfile::Reader in, precis::StoredProfile& out) {
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  out.added_unix_ms = in.getAddedUnixMs();
  return read_text("json", in.getJson(), limits::kProfileBytesMax, out.json);
}

}  // namespace wire

std::vector<std::byte> encode(const SegmentRow& row) {
  return encode_row<wire::SegmentRow>(RowKind::kSegment, row.format_version, row);
}
std::vector<std::byte> encode(const StoredSession& row) {
  return encode_row<wire::StoredSession>(RowKind::kSession, kRowVersion, row);
}
std::vector<std::byte> encode(const StoredModel& row) {
  return encode_row<wire::StoredModel>(RowKind::kModel, kRowVersion, row);
}
std::vector<std::byte> encode(const StoredBudget& row) {
  return encode_row<wire::StoredBudget>(RowKind::kBudget, kRowVersion, row);
}
std::vector<std::byte> encode(const StoredProjection& row) {
  return encode_row<wire::StoredProjection>(RowKind::kProjection, kRowVersion, row);
}
std::vector<std::byte> encode(const StoredProfile& row) {
  return encode_row<wire::StoredProfile>(RowKind::kProfile, kRowVersion, row);
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

bool SegmentRow::same_put(const SegmentRow& other) const {
  SegmentRow as_other = *this;
  as_other.plan = other.plan;
  as_other.layer_bytes = other.layer_bytes;
  as_other.stored_bytes = other.stored_bytes;
  as_other.hits = other.hits;
  as_other.trimmed = other.trimmed;
  return as_other == other;
}

}  // namespace precis
