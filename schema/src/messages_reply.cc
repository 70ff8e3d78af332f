// Server messages: replies, and the layers of a get, in the order of control.capnp.
#include "capnp_edge.h"
#include "control.capnp.h"
#include "precis/limits.h"
#include "precis/messages.h"
#include "wire_fields.h"
#include "wire_match.h"
#include "wire_model.h"
#include "wire_nouns.h"
#include "wire_status.h"

namespace precis {
namespace wire {

// ---- put ---------------------------------------------------------------------------------------
static void write(PutBegun::Builder out, const msg::PutBegun& in) {
  out.setPut(in.put);
  out.setBegin(in.begin);
  out.setEnd(in.end);
  out.setParent(as_data(in.parent));
  out.setSegment(as_data(in.segment));
  out.setAlreadyStored(in.already_stored);
  out.setRecipe(as_text(in.recipe));
  out.setEntries(in.entries);
}
static Status read(PutBegun::Reader in, msg::PutBegun& out) {
  out.put = in.getPut();
  out.begin = in.getBegin();
  out.end = in.getEnd();
  PRECIS_TRY(check_token_range("end", out.begin, out.end));
  PRECIS_TRY(read_segment_id("parent", in.getParent(), out.parent));
  PRECIS_TRY(read_segment_id("segment", in.getSegment(), out.segment));
  out.already_stored = in.getAlreadyStored();
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  out.entries = in.getEntries();
  return {};
}

// ---- get ---------------------------------------------------------------------------------------
static void write(GetDone::Builder out, const msg::GetDone& in) { out.setBytes(in.bytes); }
static Status read(GetDone::Reader in, msg::GetDone& out) {
  out.bytes = in.getBytes();
  return {};
}

static void write(LayerServed::Builder out, const msg::LayerServed& in) {
  out.setId(in.id);
  out.setLayer(in.layer);
  out.setOffset(in.offset);
  out.setCounts(as_data(in.counts));
  out.setTailChecksums(as_data(in.tail_checksums));
}
static Status read(LayerServed::Reader in, msg::LayerServed& out) {
  constexpr std::uint64_t kCutsMax = std::uint64_t{limits::kChainSegmentsMax} * limits::kKvHeadsMax;
  out.id = in.getId();
  out.layer = in.getLayer();
  out.offset = in.getOffset();
  PRECIS_TRY(check_max("layer", out.layer, limits::kLayersMax - 1));
  PRECIS_TRY(read_array("counts", in.getCounts(), kCutsMax, out.counts));
  PRECIS_TRY(read_array("tail_checksums", in.getTailChecksums(), kCutsMax, out.tail_checksums));
  if (out.counts.size() != out.tail_checksums.size()) {
    return field_error("tail_checksums", "has " + std::to_string(out.tail_checksums.size()) +
                                             " elements for " + std::to_string(out.counts.size()) +
                                             " counts");
  }
  for (const std::uint32_t count : out.counts) {
    PRECIS_TRY(check_max("counts", count, limits::kPathTokensMax));
  }
  return {};
}

// ---- operations --------------------------------------------------------------------------------
static void write(Removed::Builder out, const msg::Removed& in) {
  out.setSegments(in.segments);
  out.setBytes(in.bytes);
}
static Status read(Removed::Reader in, msg::Removed& out) {
  out.segments = in.getSegments();
  out.bytes = in.getBytes();
  return {};
}

static void write(Checked::Builder out, const msg::Checked& in) {
  out.setBytes(in.bytes);
  out.setDamage(as_text(in.damage));
}
static Status read(Checked::Reader in, msg::Checked& out) {
  out.bytes = in.getBytes();
  return read_text("damage", in.getDamage(), limits::kTextBytesMax, out.damage);
}

static void write(Trimmed::Builder out, const msg::Trimmed& in) {
  out.setEntries(in.entries);
  out.setStoredBytes(in.stored_bytes);
  out.setFreedBytes(in.freed_bytes);
}
static Status read(Trimmed::Reader in, msg::Trimmed& out) {
  out.entries = in.getEntries();
  out.stored_bytes = in.getStoredBytes();
  out.freed_bytes = in.getFreedBytes();
  return {};
}

static void write(Budgets::Row::Builder out, const msg::BudgetRow& in) {
  out.setScope(as_text(in.scope));
  out.setRecipe(as_text(in.recipe));
  if (in.keep) write(out.initKeep(), *in.keep);
  out.setVersion(in.version);
  out.setSetUnixMs(in.set_unix_ms);
}
static Status read(Budgets::Row::Reader in, msg::BudgetRow& out) {
  PRECIS_TRY(read_text("scope", in.getScope(), limits::kTextBytesMax, out.scope));
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  PRECIS_TRY(read_optional(in.hasKeep(), "keep", in.getKeep(), out.keep));
  out.version = in.getVersion();
  out.set_unix_ms = in.getSetUnixMs();
  return {};
}

static void write(Budgets::Builder out, const msg::Budgets& in) {
  write_list(out.initLayers(static_cast<unsigned>(in.layers.size())), in.layers);
  write(out.initEffective(), in.effective);
}
static Status read(Budgets::Reader in, msg::Budgets& out) {
  PRECIS_TRY(read_list("layers", in.getLayers(), limits::kListPageRowsMax, out.layers));
  return read(in.getEffective(), out.effective).with_context("effective");
}

static void write(Stats::Stat::Builder out, const msg::Stat& in) {
  out.setName(as_text(in.name));
  out.setValue(in.value);
  out.setHelp(as_text(in.help));
}
static Status read(Stats::Stat::Reader in, msg::Stat& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  out.value = in.getValue();
  return read_text("help", in.getHelp(), limits::kTextBytesMax, out.help);
}

static void write(ServerStatus::Builder out, const msg::ServerStatus& in) {
  out.setServer(as_text(in.server));
  out.setTenant(as_text(in.tenant));
  // Text from the file system and drivers, which need not be UTF-8.
  out.setDataDir(as_text(clean_text(in.data_dir, limits::kTextBytesMax)));
  out.setTransport(as_text(clean_text(in.transport, limits::kTextBytesMax)));
  out.setDevice(as_text(clean_text(in.device, limits::kTextBytesMax)));
  out.setRdma(as_text(clean_text(in.rdma, limits::kTextBytesMax)));
  out.setUptimeSeconds(in.uptime_seconds);
  out.setSegments(in.segments);
  out.setSessions(in.sessions);
  out.setModels(in.models);
  out.setStoredBytes(in.stored_bytes);
  out.setMemoryBytes(in.memory_bytes);
  out.setMemoryLimitBytes(in.memory_limit_bytes);
  out.setSegmentsOutOfService(in.segments_out_of_service);
  out.setDiskFreeBytes(in.disk_free_bytes);
  out.setDiskMinFreeBytes(in.disk_min_free_bytes);
  out.setDiskLow(in.disk_low);
  out.setDiskFault(as_text(clean_text(in.disk_fault, limits::kTextBytesMax)));
  out.setExposed(as_text(clean_text(in.exposed, limits::kTextBytesMax)));
  out.setDoubtfulRecovery(in.doubtful_recovery);
  out.setLostChanges(in.lost_changes);
  out.setKeptBytes(in.kept_bytes);
  out.setKeptLogBytes(in.kept_log_bytes);
}
static Status read(ServerStatus::Reader in, msg::ServerStatus& out) {
  PRECIS_TRY(read_name("server", in.getServer(), out.server));
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  PRECIS_TRY(read_text("data_dir", in.getDataDir(), limits::kTextBytesMax, out.data_dir));
  PRECIS_TRY(read_text("transport", in.getTransport(), limits::kTextBytesMax, out.transport));
  PRECIS_TRY(read_text("device", in.getDevice(), limits::kTextBytesMax, out.device));
  PRECIS_TRY(read_text("rdma", in.getRdma(), limits::kTextBytesMax, out.rdma));
  out.uptime_seconds = in.getUptimeSeconds();
  out.segments = in.getSegments();
  out.sessions = in.getSessions();
  out.models = in.getModels();
  out.stored_bytes = in.getStoredBytes();
  out.memory_bytes = in.getMemoryBytes();
  out.memory_limit_bytes = in.getMemoryLimitBytes();
  out.segments_out_of_service = in.getSegmentsOutOfService();
  out.disk_free_bytes = in.getDiskFreeBytes();
  out.disk_min_free_bytes = in.getDiskMinFreeBytes();
  out.disk_low = in.getDiskLow();
  PRECIS_TRY(read_text("disk_fault", in.getDiskFault(), limits::kTextBytesMax, out.disk_fault));
  PRECIS_TRY(read_text("exposed", in.getExposed(), limits::kTextBytesMax, out.exposed));
  out.doubtful_recovery = in.getDoubtfulRecovery();
  out.lost_changes = in.getLostChanges();
  out.kept_bytes = in.getKeptBytes();
  out.kept_log_bytes = in.getKeptLogBytes();
  return {};
}

// ---- lists, and nothing ------------------------------------------------------------------------
template <typename Builder, typename Rows>
void write_rows(Builder out, const Rows& in) {
  write_list(out.initRows(static_cast<unsigned>(in.rows.size())), in.rows);
}
template <typename Reader, typename Rows>
Status read_rows(Reader in, Rows& out) {
  return read_list("rows", in.getRows(), limits::kListPageRowsMax, out.rows);
}
template <typename Builder, typename Rows>
void write_page(Builder out, const Rows& in) {
  write_rows(out, in);
  out.setNext(as_data(in.next));
}
template <typename Reader, typename Rows>
Status read_page(Reader in, Rows& out) {
  PRECIS_TRY(read_cursor("next", in.getNext(), out.next));
  return read_rows(in, out);
}
static void write(Models::Builder out, const msg::Models& in) { write_page(out, in); }
static Status read(Models::Reader in, msg::Models& out) { return read_page(in, out); }
static void write(Profiles::Builder out, const msg::Profiles& in) { write_rows(out, in); }
static Status read(Profiles::Reader in, msg::Profiles& out) { return read_rows(in, out); }
static void write(Segments::Builder out, const msg::Segments& in) { write_page(out, in); }
static Status read(Segments::Reader in, msg::Segments& out) { return read_page(in, out); }
static void write(Sessions::Builder out, const msg::Sessions& in) { write_page(out, in); }
static Status read(Sessions::Reader in, msg::Sessions& out) { return read_page(in, out); }
static void write(Stats::Builder out, const msg::Stats& in) { write_rows(out, in); }
static Status read(Stats::Reader in, msg::Stats& out) { return read_rows(in, out); }
static void write(Done::Builder, const msg::Done&) {}
static Status read(Done::Reader, msg::Done&) { return {}; }

// ---- kinds --------------------------------------------------------------------------------------
// One overload per kind, so a new kind without an overload does not compile.
struct ReplyWriter {
  Reply::Body::Builder out;
  void operator()(const msg::Done& in) { write(out.initDone(), in); }
  void operator()(const msg::ModelRow& in) { write(out.initModelRow(), in); }
  void operator()(const msg::Models& in) { write(out.initModels(), in); }
  void operator()(const msg::PutBegun& in) { write(out.initPutBegun(), in); }
  void operator()(const msg::SegmentInfo& in) { write(out.initSegmentInfo(), in); }
  void operator()(const msg::Segments& in) { write(out.initSegments(), in); }
  void operator()(const msg::Match& in) { write(out.initMatch(), in); }
  void operator()(const msg::GetDone& in) { write(out.initGetDone(), in); }
  void operator()(const msg::SessionRow& in) { write(out.initSessionRow(), in); }
  void operator()(const msg::Sessions& in) { write(out.initSessions(), in); }
  void operator()(const msg::Removed& in) { write(out.initRemoved(), in); }
  void operator()(const msg::Budgets& in) { write(out.initBudgets(), in); }
  void operator()(const msg::Stats& in) { write(out.initStats(), in); }
  void operator()(const msg::ServerStatus& in) { write(out.initServerStatus(), in); }
  void operator()(const msg::ProfileRow& in) { write(out.initProfileRow(), in); }
  void operator()(const msg::Profiles& in) { write(out.initProfiles(), in); }
  void operator()(const msg::Checked& in) { write(out.initChecked(), in); }
  void operator()(const msg::Trimmed& in) { write(out.initTrimmed(), in); }
};

static Status read(Reply::Body::Reader in, msg::ReplyBody& out) {
  switch (in.which()) {
    case Reply::Body::DONE: return read(in.getDone(), out.emplace<msg::Done>());
    case Reply::Body::MODEL_ROW: return read(in.getModelRow(), out.emplace<msg::ModelRow>());
    case Reply::Body::MODELS: return read(in.getModels(), out.emplace<msg::Models>());
    case Reply::Body::PUT_BEGUN: return read(in.getPutBegun(), out.emplace<msg::PutBegun>());
    case Reply::Body::SEGMENT_INFO:
      return read(in.getSegmentInfo(), out.emplace<msg::SegmentInfo>());
    case Reply::Body::SEGMENTS: return read(in.getSegments(), out.emplace<msg::Segments>());
    case Reply::Body::MATCH: return read(in.getMatch(), out.emplace<msg::Match>());
    case Reply::Body::GET_DONE: return read(in.getGetDone(), out.emplace<msg::GetDone>());
    case Reply::Body::SESSION_ROW: return read(in.getSessionRow(), out.emplace<msg::SessionRow>());
    case Reply::Body::SESSIONS: return read(in.getSessions(), out.emplace<msg::Sessions>());
    case Reply::Body::REMOVED: return read(in.getRemoved(), out.emplace<msg::Removed>());
    case Reply::Body::BUDGETS: return read(in.getBudgets(), out.emplace<msg::Budgets>());
    case Reply::Body::STATS: return read(in.getStats(), out.emplace<msg::Stats>());
    case Reply::Body::SERVER_STATUS:
      return read(in.getServerStatus(), out.emplace<msg::ServerStatus>());
    case Reply::Body::PROFILE_ROW: return read(in.getProfileRow(), out.emplace<msg::ProfileRow>());
    case Reply::Body::PROFILES: return read(in.getProfiles(), out.emplace<msg::Profiles>());
    case Reply::Body::CHECKED: return read(in.getChecked(), out.emplace<msg::Checked>());
    case Reply::Body::TRIMMED: return read(in.getTrimmed(), out.emplace<msg::Trimmed>());
  }
  return field_error("kind", "is " + std::to_string(in.which()) + ", unknown to protocol version " +
                                 std::to_string(kProtocolVersion));
}

static void write(Reply::Builder out, const msg::Reply& in) {
  out.setId(in.id);
  out.setCode(static_cast<StatusCode>(in.status.code()));
  out.setMessage(as_text(wire_message(in.status)));
  out.setRetryAfterMs(in.status.retry_after_ms());
  std::visit(ReplyWriter{out.initBody()}, in.body);
}
static Status read(Reply::Reader in, msg::Reply& out) {
  out.id = in.getId();
  PRECIS_TRY(read_status(in.getCode(), in.getMessage(), in.getRetryAfterMs(), out.status));
  return read(in.getBody(), out.body);
}

struct ServerMessageWriter {
  ServerMessage::Builder out;
  void operator()(const msg::Reply& in) { write(out.initReply(), in); }
  void operator()(const msg::LayerServed& in) { write(out.initLayerServed(), in); }
};

static Status read(ServerMessage::Reader in, msg::ServerMessage& out) {
  switch (in.which()) {
    case ServerMessage::REPLY: return read(in.getReply(), out.emplace<msg::Reply>());
    case ServerMessage::LAYER_SERVED:
      return read(in.getLayerServed(), out.emplace<msg::LayerServed>());
  }
  return field_error("kind", "is " + std::to_string(in.which()) + ", unknown to protocol version " +
                                 std::to_string(kProtocolVersion));
}

}  // namespace wire

std::vector<std::byte> encode(const msg::ServerMessage& server_message) {
  MessageWriter message;
  std::visit(wire::ServerMessageWriter{message.root<wire::ServerMessage>()}, server_message);
  return message.take();
}

Result<msg::ServerMessage> decode_server_message(Bytes bytes) {
  return decode_root<wire::ServerMessage, msg::ServerMessage>("server message", bytes,
                                                              limits::kMessageBytesMax);
}

}  // namespace precis
