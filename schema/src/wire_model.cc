#include "wire_model.h"

#include "precis/limits.h"
#include "wire_fields.h"
#include "wire_nouns.h"

namespace precis::wire {

// ---- pieces ------------------------------------------------------------------------------------
void write(RemoteRegion::Builder out, const precis::RemoteRegion& in) {
  out.setId(in.id);
  out.setAddress(in.address);
  out.setSizeBytes(in.size_bytes);
  out.setKey(as_data(in.key));
  out.setBuffer(in.buffer);
  out.setBufferOffset(in.buffer_offset);
  out.setSlot(in.slot);
  out.setSpace(static_cast<std::uint8_t>(in.space));
}
Status read(RemoteRegion::Reader in, precis::RemoteRegion& out) {
  out.id = in.getId();
  out.address = in.getAddress();
  out.size_bytes = in.getSizeBytes();
  out.buffer = in.getBuffer();
  out.buffer_offset = in.getBufferOffset();
  out.slot = in.getSlot();
  PRECIS_TRY(check_max("space", in.getSpace(), std::uint8_t{1}));
  out.space = static_cast<MemorySpace>(in.getSpace());
  // Otherwise address + size_bytes could wrap around and look like a small range.
  PRECIS_TRY(check_max("size_bytes", out.size_bytes, ~std::uint64_t{0} - out.address));
  const auto key = in.getKey();
  PRECIS_TRY(check_max("key length", key.size(), limits::kRegionKeyBytesMax));
  out.key.assign(reinterpret_cast<const char*>(key.begin()), key.size());
  return {};
}

// ---- models ------------------------------------------------------------------------------------
void write(RegisterModel::Builder out, const msg::RegisterModel& in) {
  write(out.initModel(), in.model);
}
Status read(RegisterModel::Reader in, msg::RegisterModel& out) {
  return read(in.getModel(), out.model);
}

void write(ListModels::Builder out, const msg::ListModels& in) { out.setAfter(as_data(in.after)); }
Status read(ListModels::Reader in, msg::ListModels& out) {
  return read_cursor("after", in.getAfter(), out.after);
}

void write(ModelRow::Builder out, const msg::ModelRow& in) {
  write(out.initModel(), in.model);
  out.setFingerprint(as_data(in.fingerprint));
  out.setSegments(in.segments);
  out.setProjections(in.projections);
}
Status read(ModelRow::Reader in, msg::ModelRow& out) {
  out.segments = in.getSegments();
  out.projections = in.getProjections();
  PRECIS_TRY(check_max("projections", out.projections, limits::kLayersMax));
  PRECIS_TRY(read_digest("fingerprint", in.getFingerprint(), out.fingerprint));
  return read(in.getModel(), out.model);
}

// ---- output projections ------------------------------------------------------------------------
void write(PushProjection::Builder out, const msg::PushProjection& in) {
  out.setModel(as_data(in.model));
  out.setLayer(in.layer);
  out.setWidth(in.width);
  out.setDtype(static_cast<Dtype>(in.dtype));
  write(out.initWeights(), in.weights);
}
Status read(PushProjection::Reader in, msg::PushProjection& out) {
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  out.layer = in.getLayer();
  out.width = in.getWidth();
  PRECIS_TRY(check_max("layer", out.layer, limits::kLayersMax - 1));
  PRECIS_TRY(check_max("width", out.width, limits::kHiddenMax));
  if (out.width == 0) return field_error("width", "is 0");
  PRECIS_TRY(read_enum("dtype", in.getDtype(), precis::Dtype::kF32, out.dtype));
  if (in.getDtype() == Dtype::UNSET) return field_error("dtype", "is unset");
  return read(in.getWeights(), out.weights).with_context("weights");
}

// ---- profiles ----------------------------------------------------------------------------------
void write(AddProfile::Builder out, const msg::AddProfile& in) { out.setJson(as_text(in.json)); }
Status read(AddProfile::Reader in, msg::AddProfile& out) {
  return read_text("json", in.getJson(), limits::kProfileBytesMax, out.json);
}

void write(ListProfiles::Builder out, const msg::ListProfiles& in) {
  if (in.model) out.setModel(as_data(*in.model));
}
Status read(ListProfiles::Reader in, msg::ListProfiles& out) {
  if (!in.hasModel()) return {};
  return read_digest("model", in.getModel(), out.model.emplace());
}

void write(ShowProfile::Builder out, const msg::ShowProfile& in) {
  out.setModel(as_data(in.model));
  out.setName(as_text(in.name));
}
Status read(ShowProfile::Reader in, msg::ShowProfile& out) {
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  return read_name("name", in.getName(), out.name);
}

void write(RemoveProfile::Builder out, const msg::RemoveProfile& in) {
  out.setModel(as_data(in.model));
  out.setName(as_text(in.name));
}
Status read(RemoveProfile::Reader in, msg::RemoveProfile& out) {
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  return read_name("name", in.getName(), out.name);
}

void write(ProfileRow::Builder out, const msg::ProfileRow& in) {
  out.setName(as_text(in.name));
  out.setKind(as_text(in.kind));
  out.setModel(as_data(in.model));
  out.setScorer(as_text(in.scorer));
  out.setDigest(as_data(in.digest));
  out.setNumTokens(in.num_tokens);
  out.setTextDigest(as_text(in.text_digest));
  out.setAddedUnixMs(in.added_unix_ms);
  if (!in.json.empty()) out.setJson(as_text(in.json));
}
Status read(ProfileRow::Reader in, msg::ProfileRow& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  PRECIS_TRY(read_name("kind", in.getKind(), out.kind));
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  PRECIS_TRY(read_text("scorer", in.getScorer(), limits::kRecipeBytesMax, out.scorer));
  PRECIS_TRY(read_digest("digest", in.getDigest(), out.digest));
  out.num_tokens = in.getNumTokens();
  PRECIS_TRY(read_text("text_digest", in.getTextDigest(), limits::kNameBytesMax, out.text_digest));
  out.added_unix_ms = in.getAddedUnixMs();
  return read_text("json", in.getJson(), limits::kProfileBytesMax, out.json);
}

}  // namespace precis::wire
