#include "wire_nouns.h"

#include "precis/limits.h"
#include "wire_fields.h"

namespace precis::wire {

void write(ModelSpec::Builder out, const precis::ModelSpec& in) {
  out.setName(as_text(in.name));
  out.setRevision(as_text(in.revision));
  out.setNumLayers(in.num_layers);
  out.setNumQHeads(in.num_q_heads);
  out.setNumKvHeads(in.num_kv_heads);
  out.setHeadDim(in.head_dim);
  out.setDtype(static_cast<Dtype>(in.dtype));
  out.setRopeTheta(in.rope_theta);
  out.setRopeScaling(as_text(in.rope_scaling));
  out.setBlockTokens(in.block_tokens);
}

Status read(ModelSpec::Reader in, precis::ModelSpec& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  PRECIS_TRY(read_name("revision", in.getRevision(), out.revision));
  out.num_layers = in.getNumLayers();
  out.num_q_heads = in.getNumQHeads();
  out.num_kv_heads = in.getNumKvHeads();
  out.head_dim = in.getHeadDim();
  PRECIS_TRY(read_enum("dtype", in.getDtype(), precis::Dtype::kF32, out.dtype));
  out.rope_theta = in.getRopeTheta();
  PRECIS_TRY(read_text("rope_scaling", in.getRopeScaling(), limits::kRopeScalingBytesMax,
                       out.rope_scaling));
  out.block_tokens = in.getBlockTokens();
  return out.validate();
}

void write(Budget::Builder out, const precis::Budget& in) {
  out.setKind(static_cast<Budget::Kind>(in.kind));
  out.setValue(in.value);
}

Status read(Budget::Reader in, precis::Budget& out) {
  PRECIS_TRY(read_enum("kind", in.getKind(), precis::Budget::Kind::kQuality, out.kind));
  out.value = in.getValue();
  return {};
}

void write(Plan::Builder out, const precis::Plan& in) {
  out.setNumLayers(in.num_layers);
  out.setNumKvHeads(in.num_kv_heads);
  out.setCounts(as_data(in.counts));
}

Status read(Plan::Reader in, precis::Plan& out) {
  out.num_layers = in.getNumLayers();
  out.num_kv_heads = in.getNumKvHeads();
  PRECIS_TRY(check_max("num_layers", out.num_layers, limits::kLayersMax));
  PRECIS_TRY(check_max("num_kv_heads", out.num_kv_heads, limits::kKvHeadsMax));
  PRECIS_TRY(read_array("counts", in.getCounts(), limits::kSegmentHeadsMax, out.counts));
  if (out.counts.size() != std::size_t{out.num_layers} * out.num_kv_heads) {
    return field_error("counts", "has " + std::to_string(out.counts.size()) + " elements for " +
                                     std::to_string(out.num_layers) + " layers of " +
                                     std::to_string(out.num_kv_heads) + " heads");
  }
  return {};
}

void write(SessionRow::Builder out, const msg::SessionRow& in) {
  out.setName(as_text(in.name));
  out.setTip(as_data(in.tip));
  out.setTipEnd(in.tip_end);
  out.setTurns(in.turns);
  out.setTtlSeconds(in.ttl_seconds);
  out.setExpiresUnixMs(in.expires_unix_ms);
  out.setPinned(in.pinned);
  out.setUpdatedUnixMs(in.updated_unix_ms);
}

Status read(SessionRow::Reader in, msg::SessionRow& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  PRECIS_TRY(read_segment_id("tip", in.getTip(), out.tip));
  out.tip_end = in.getTipEnd();
  PRECIS_TRY(check_max("tip_end", out.tip_end, limits::kPathTokensMax));
  out.turns = in.getTurns();
  out.ttl_seconds = in.getTtlSeconds();
  out.expires_unix_ms = in.getExpiresUnixMs();
  out.pinned = in.getPinned();
  out.updated_unix_ms = in.getUpdatedUnixMs();
  return {};
}

Status check_token_range(std::string_view field, std::uint32_t begin, std::uint32_t end) {
  PRECIS_TRY(check_max(field, end, limits::kPathTokensMax));
  if (begin <= end) return {};
  return field_error(field, "is [" + std::to_string(begin) + ", " + std::to_string(end) + ")");
}

}  // namespace precis::wire
