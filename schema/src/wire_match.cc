#include "wire_match.h"

#include "capnp_edge.h"
#include "precis/limits.h"
#include "wire_fields.h"
#include "wire_model.h"
#include "wire_nouns.h"

namespace precis {
namespace wire {
namespace {

constexpr std::uint32_t kPassedMatchVersion = 1;

Status read_align(std::uint32_t in, std::uint32_t& out) {
  out = in;
  if (out >= 1 && out <= limits::kAlignMax) return {};
  return field_error("align", "is " + std::to_string(out) + ", must be in [1, " +
                                  std::to_string(limits::kAlignMax) + "]");
}

Status read_counts(capnp::Data::Reader in, std::vector<std::uint32_t>& out) {
  PRECIS_TRY(read_array("counts", in, limits::kMatchCountsMax, out));
  for (const std::uint32_t count : out) {
    PRECIS_TRY(check_max("counts", count, limits::kPathTokensMax));
  }
  return {};
}

// Checks the counts of all links together.
template <typename Links>
Status check_counts(const Links& links) {
  std::uint64_t sum = 0;
  for (const auto& link : links) sum += link.counts.size();
  return check_max("counts of all links", sum, limits::kMatchCountsMax);
}

}  // namespace

// ---- requests ----------------------------------------------------------------------------------
void write(Lookup::Builder out, const msg::Lookup& in) {
  out.setModel(as_data(in.model));
  out.setAdapter(as_text(in.adapter));
  out.setTokens(as_data(in.tokens));
  if (in.keep) write(out.initKeep(), *in.keep);
  out.setAlign(in.align);
  out.setLeaseMs(in.lease_ms);
}
Status read(Lookup::Reader in, msg::Lookup& out) {
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  PRECIS_TRY(read_name("adapter", in.getAdapter(), out.adapter));
  PRECIS_TRY(read_optional(in.hasKeep(), "keep", in.getKeep(), out.keep));
  PRECIS_TRY(read_align(in.getAlign(), out.align));
  out.lease_ms = in.getLeaseMs();
  return read_array("tokens", in.getTokens(), limits::kPathTokensMax, out.tokens);
}

static void write(Get::Link::Builder out, const msg::GetLink& in) {
  out.setSegment(as_data(in.segment));
  out.setMatchedEnd(in.matched_end);
  out.setEntries(in.entries);
  if (!in.counts.empty()) out.setCounts(as_data(in.counts));
  out.setCreatedUnixMs(in.created_unix_ms);
  out.setStoredEntries(in.stored_entries);
}
static Status read(Get::Link::Reader in, msg::GetLink& out) {
  PRECIS_TRY(read_segment_id("segment", in.getSegment(), out.segment));
  out.matched_end = in.getMatchedEnd();
  out.entries = in.getEntries();
  out.created_unix_ms = in.getCreatedUnixMs();
  out.stored_entries = in.getStoredEntries();
  PRECIS_TRY(check_max("matched_end", out.matched_end, limits::kPathTokensMax));
  return read_counts(in.getCounts(), out.counts);
}

void write(Get::Builder out, const msg::Get& in) {
  write_list(out.initLinks(static_cast<unsigned>(in.links.size())), in.links);
  write(out.initBudget(), in.budget);
  write(out.initDestination(), in.destination);
  out.setHeadBegin(in.head_begin);
  out.setHeadCount(in.head_count);
}
Status read(Get::Reader in, msg::Get& out) {
  PRECIS_TRY(read_list("links", in.getLinks(), limits::kChainSegmentsMax, out.links));
  PRECIS_TRY(check_counts(out.links));
  PRECIS_TRY(read(in.getBudget(), out.budget).with_context("budget"));
  out.head_begin = in.getHeadBegin();
  out.head_count = in.getHeadCount();
  PRECIS_TRY(check_max("head_begin", out.head_begin, limits::kKvHeadsMax));
  PRECIS_TRY(check_max("head_count", out.head_count, limits::kKvHeadsMax - out.head_begin));
  return read(in.getDestination(), out.destination).with_context("destination");
}

// ---- replies -----------------------------------------------------------------------------------
void write(SegmentInfo::Builder out, const msg::SegmentInfo& in) {
  out.setId(as_data(in.id));
  out.setParent(as_data(in.parent));
  out.setModel(as_data(in.model));
  out.setAdapter(as_text(in.adapter));
  out.setBegin(in.begin);
  out.setEnd(in.end);
  out.setRecipe(as_text(in.recipe));
  out.setPreset(as_text(in.preset));
  write(out.initBudget(), in.budget);
  if (in.parent_read) write(out.initParentRead(), *in.parent_read);
  out.setEntries(in.entries);
  out.setOriginalBytes(in.original_bytes);
  out.setStoredBytes(in.stored_bytes);
  out.setCompressSeconds(in.compress_seconds);
  out.setCreatedUnixMs(in.created_unix_ms);
  out.setHits(in.hits);
  out.setChildren(in.children);
  out.setInMemory(in.in_memory);
  if (in.plan) write(out.initPlan(), *in.plan);
  if (in.trimmed) write(out.initTrimmed(), *in.trimmed);
  out.setOutOfService(in.out_of_service);
}
Status read(SegmentInfo::Reader in, msg::SegmentInfo& out) {
  PRECIS_TRY(read_segment_id("id", in.getId(), out.id));
  PRECIS_TRY(read_segment_id("parent", in.getParent(), out.parent));
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  PRECIS_TRY(read_name("adapter", in.getAdapter(), out.adapter));
  out.begin = in.getBegin();
  out.end = in.getEnd();
  PRECIS_TRY(check_token_range("end", out.begin, out.end));
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  PRECIS_TRY(read_name("preset", in.getPreset(), out.preset));
  PRECIS_TRY(read(in.getBudget(), out.budget).with_context("budget"));
  PRECIS_TRY(read_optional(in.hasParentRead(), "parent_read", in.getParentRead(), out.parent_read));
  out.entries = in.getEntries();
  out.original_bytes = in.getOriginalBytes();
  out.stored_bytes = in.getStoredBytes();
  out.compress_seconds = in.getCompressSeconds();
  out.created_unix_ms = in.getCreatedUnixMs();
  out.hits = in.getHits();
  out.children = in.getChildren();
  out.in_memory = in.getInMemory();
  out.out_of_service = in.getOutOfService();
  PRECIS_TRY(read_optional(in.hasPlan(), "plan", in.getPlan(), out.plan));
  return read_optional(in.hasTrimmed(), "trimmed", in.getTrimmed(), out.trimmed);
}

static void write(Match::Link::Builder out, const msg::MatchLink& in) {
  write(out.initSegment(), in.segment);
  out.setMatchedEnd(in.matched_end);
  if (!in.counts.empty()) out.setCounts(as_data(in.counts));
}
static Status read(Match::Link::Reader in, msg::MatchLink& out) {
  PRECIS_TRY(read(in.getSegment(), out.segment).with_context("segment"));
  out.matched_end = in.getMatchedEnd();
  PRECIS_TRY(check_max("matched_end", out.matched_end, out.segment.end));
  return read_counts(in.getCounts(), out.counts);
}

void write(Match::Builder out, const msg::Match& in) {
  out.setMatchedTokens(in.matched_tokens);
  write_list(out.initLinks(static_cast<unsigned>(in.links.size())), in.links);
  write(out.initPlan(), in.plan);
  out.setBytes(in.bytes);
  out.setPredictedSeconds(in.predicted_seconds);
  out.setLeaseMs(in.lease_ms);
}
Status read(Match::Reader in, msg::Match& out) {
  out.matched_tokens = in.getMatchedTokens();
  PRECIS_TRY(check_max("matched_tokens", out.matched_tokens, limits::kPathTokensMax));
  PRECIS_TRY(read_list("links", in.getLinks(), limits::kChainSegmentsMax, out.links));
  PRECIS_TRY(check_counts(out.links));
  PRECIS_TRY(read(in.getPlan(), out.plan).with_context("plan"));
  out.bytes = in.getBytes();
  out.predicted_seconds = in.getPredictedSeconds();
  out.lease_ms = in.getLeaseMs();
  return {};
}

// ---- a match that one client passes to another --------------------------------------------------
static void write(PassedMatch::Builder out, const msg::PassedMatch& in) {
  out.setVersion(kPassedMatchVersion);
  write(out.initMatch(), in.match);
  write(out.initModel(), in.model);
  out.setFingerprint(as_data(in.fingerprint));
  out.setAdapter(as_text(in.adapter));
  if (in.keep) write(out.initKeep(), *in.keep);
  out.setAlign(in.align);
  out.setTokens(as_data(in.tokens));
}
static Status read(PassedMatch::Reader in, msg::PassedMatch& out) {
  if (in.getVersion() > kPassedMatchVersion) {
    return Status::version("version is " + std::to_string(in.getVersion()) + ", this build reads " +
                           std::to_string(kPassedMatchVersion));
  }
  if (in.getVersion() == 0) return field_error("version", "is 0, must be at least 1");
  PRECIS_TRY(read(in.getMatch(), out.match).with_context("match"));
  PRECIS_TRY(read(in.getModel(), out.model).with_context("model"));
  PRECIS_TRY(read_digest("fingerprint", in.getFingerprint(), out.fingerprint));
  PRECIS_TRY(read_name("adapter", in.getAdapter(), out.adapter));
  PRECIS_TRY(read_optional(in.hasKeep(), "keep", in.getKeep(), out.keep));
  PRECIS_TRY(read_align(in.getAlign(), out.align));
  PRECIS_TRY(read_array("tokens", in.getTokens(), limits::kPathTokensMax, out.tokens));
  if (out.tokens.empty() || out.tokens.size() == out.match.matched_tokens) return {};
  return field_error("tokens", "has " + std::to_string(out.tokens.size()) + " elements, of " +
                                   std::to_string(out.match.matched_tokens) + " that matched");
}

}  // namespace wire

std::vector<std::byte> encode(const msg::PassedMatch& match) {
  MessageWriter message(match.tokens.size() * sizeof(TokenId));
  wire::write(message.root<wire::PassedMatch>(), match);
  return message.take();
}

Result<msg::PassedMatch> decode_passed_match(Bytes bytes) {
  return decode_root<wire::PassedMatch, msg::PassedMatch>("match", bytes, limits::kMessageBytesMax);
}

}  // namespace precis
