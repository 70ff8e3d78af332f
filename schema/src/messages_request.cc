// Requests of a client, in the order of control.capnp.
#include "capnp_edge.h"
#include "control.capnp.h"
#include "precis/limits.h"
#include "precis/messages.h"
#include "wire_fields.h"
#include "wire_match.h"
#include "wire_model.h"
#include "wire_nouns.h"

namespace precis {
namespace wire {

// ---- pieces ------------------------------------------------------------------------------------
static void write(BudgetScope::Builder out, const msg::BudgetScope& in) {
  if (in.model) out.setModel(as_data(*in.model));
}
static Status read(BudgetScope::Reader in, msg::BudgetScope& out) {
  if (!in.hasModel()) return {};
  return read_digest("model", in.getModel(), out.model.emplace());
}

// ---- put ---------------------------------------------------------------------------------------
static void write(BeginPut::Builder out, const msg::BeginPut& in) {
  out.setModel(as_data(in.model));
  out.setAdapter(as_text(in.adapter));
  out.setTokens(as_data(in.tokens));
  out.setParentKind(static_cast<BeginPut::ParentKind>(in.parent_kind));
  out.setParent(as_data(in.parent));
  out.setRecipe(as_text(in.recipe));
  if (in.budget) write(out.initBudget(), *in.budget);
  if (in.parent_read) write(out.initParentRead(), *in.parent_read);
  out.setWriters(in.writers);
}
static Status read(BeginPut::Reader in, msg::BeginPut& out) {
  using ParentKind = msg::BeginPut::ParentKind;
  PRECIS_TRY(read_digest("model", in.getModel(), out.model));
  PRECIS_TRY(read_name("adapter", in.getAdapter(), out.adapter));
  PRECIS_TRY(read_array("tokens", in.getTokens(), limits::kPathTokensMax, out.tokens));
  PRECIS_TRY(read_enum("parent_kind", in.getParentKind(), ParentKind::kSegment, out.parent_kind));
  PRECIS_TRY(read_segment_id("parent", in.getParent(), out.parent));
  PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe));
  PRECIS_TRY(read_optional(in.hasBudget(), "budget", in.getBudget(), out.budget));
  PRECIS_TRY(read_optional(in.hasParentRead(), "parent_read", in.getParentRead(), out.parent_read));
  out.writers = in.getWriters();
  if (out.writers >= 1 && out.writers <= limits::kWritersMax) return {};
  return Status::invalid("writers is " + std::to_string(out.writers) + ", must be in [1, " +
                         std::to_string(limits::kWritersMax) + "]");
}

static void write(PushLayer::Builder out, const msg::PushLayer& in) {
  out.setPut(in.put);
  out.setLayer(in.layer);
  out.setHeadBegin(in.head_begin);
  out.setHeadCount(in.head_count);
  out.setTokenBegin(in.token_begin);
  out.setTokenCount(in.token_count);
  out.setDtype(static_cast<Dtype>(in.dtype));
  write(out.initKeys(), in.keys);
  write(out.initValues(), in.values);
  out.setKeysHeadStride(in.keys_head_stride);
  out.setValuesHeadStride(in.values_head_stride);
  out.setNumQueries(in.num_queries);
  if (in.queries) write(out.initQueries(), *in.queries);
  if (in.lse) write(out.initLse(), *in.lse);
  if (in.scores) write(out.initScores(), *in.scores);
  if (in.query_mean) write(out.initQueryMean(), *in.query_mean);
  if (in.query_covariance) write(out.initQueryCovariance(), *in.query_covariance);
}
static Status read_push_shape(PushLayer::Reader in, msg::PushLayer& out) {
  out.layer = in.getLayer();
  out.head_begin = in.getHeadBegin();
  out.head_count = in.getHeadCount();
  out.token_begin = in.getTokenBegin();
  out.token_count = in.getTokenCount();
  out.num_queries = in.getNumQueries();
  PRECIS_TRY(check_max("layer", out.layer, limits::kLayersMax - 1));
  PRECIS_TRY(check_max("head_begin", out.head_begin, limits::kKvHeadsMax));
  PRECIS_TRY(check_max("head_count", out.head_count, limits::kKvHeadsMax - out.head_begin));
  PRECIS_TRY(check_max("token_begin", out.token_begin, limits::kPathTokensMax));
  PRECIS_TRY(check_max("token_count", out.token_count, limits::kPathTokensMax - out.token_begin));
  PRECIS_TRY(check_max("num_queries", out.num_queries, limits::kObservationQueriesMax));
  PRECIS_TRY(read_enum("dtype", in.getDtype(), precis::Dtype::kF32, out.dtype));
  if (in.getDtype() == Dtype::UNSET) return field_error("dtype", "is unset");
  return {};
}
static Status read(PushLayer::Reader in, msg::PushLayer& out) {
  out.put = in.getPut();
  PRECIS_TRY(read_push_shape(in, out));
  PRECIS_TRY(read(in.getKeys(), out.keys).with_context("keys"));
  PRECIS_TRY(read(in.getValues(), out.values).with_context("values"));
  out.keys_head_stride = in.getKeysHeadStride();
  out.values_head_stride = in.getValuesHeadStride();
  if (out.head_count > 1) {  // a single head has no stride
    PRECIS_TRY(check_max("keys_head_stride", out.keys_head_stride, out.keys.size_bytes));
    PRECIS_TRY(check_max("values_head_stride", out.values_head_stride, out.values.size_bytes));
  }
  PRECIS_TRY(read_optional(in.hasQueries(), "queries", in.getQueries(), out.queries));
  PRECIS_TRY(read_optional(in.hasLse(), "lse", in.getLse(), out.lse));
  PRECIS_TRY(read_optional(in.hasQueryMean(), "query_mean", in.getQueryMean(), out.query_mean));
  PRECIS_TRY(read_optional(in.hasQueryCovariance(), "query_covariance", in.getQueryCovariance(),
                           out.query_covariance));
  return read_optional(in.hasScores(), "scores", in.getScores(), out.scores);
}

static void write(CommitPut::Builder out, const msg::CommitPut& in) {
  out.setPut(in.put);
  out.setDurability(static_cast<Durability>(in.durability));
}
static Status read(CommitPut::Reader in, msg::CommitPut& out) {
  out.put = in.getPut();
  return read_enum("durability", in.getDurability(), precis::Durability::kFsync, out.durability);
}

static void write(AbortPut::Builder out, const msg::AbortPut& in) { out.setPut(in.put); }
static Status read(AbortPut::Reader in, msg::AbortPut& out) {
  out.put = in.getPut();
  return {};
}

// ---- get ---------------------------------------------------------------------------------------
static void write(Cancel::Builder out, const msg::Cancel& in) { out.setRequest(in.request); }
static Status read(Cancel::Reader in, msg::Cancel& out) {
  out.request = in.getRequest();
  return {};
}

// ---- sessions ----------------------------------------------------------------------------------
static void write(OpenSession::Builder out, const msg::OpenSession& in) {
  out.setName(as_text(in.name));
  if (in.ttl_seconds) out.getTtl().setSeconds(*in.ttl_seconds);
}
static Status read(OpenSession::Reader in, msg::OpenSession& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  switch (in.getTtl().which()) {
    case OpenSession::Ttl::UNCHANGED: return {};
    case OpenSession::Ttl::SECONDS: out.ttl_seconds = in.getTtl().getSeconds(); return {};
  }
  return field_error("ttl", "is of an unknown kind");
}

static void write(AdvanceSession::Builder out, const msg::AdvanceSession& in) {
  out.setName(as_text(in.name));
  out.setTip(as_data(in.tip));
}
static Status read(AdvanceSession::Reader in, msg::AdvanceSession& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  return read_segment_id("tip", in.getTip(), out.tip);
}

static void write(PinSession::Builder out, const msg::PinSession& in) {
  out.setName(as_text(in.name));
  out.setPinned(in.pinned);
}
static Status read(PinSession::Reader in, msg::PinSession& out) {
  out.pinned = in.getPinned();
  return read_name("name", in.getName(), out.name);
}

static void write(ForkSession::Builder out, const msg::ForkSession& in) {
  out.setName(as_text(in.name));
  out.setNewName(as_text(in.new_name));
}
static Status read(ForkSession::Reader in, msg::ForkSession& out) {
  PRECIS_TRY(read_name("name", in.getName(), out.name));
  return read_name("new_name", in.getNewName(), out.new_name);
}

static void write(ShowSession::Builder out, const msg::ShowSession& in) {
  out.setName(as_text(in.name));
}
static Status read(ShowSession::Reader in, msg::ShowSession& out) {
  return read_name("name", in.getName(), out.name);
}

static void write(ListSessions::Builder out, const msg::ListSessions& in) {
  out.setAfter(as_data(in.after));
}
static Status read(ListSessions::Reader in, msg::ListSessions& out) {
  return read_cursor("after", in.getAfter(), out.after);
}

static void write(RemoveSession::Builder out, const msg::RemoveSession& in) {
  out.setName(as_text(in.name));
}
static Status read(RemoveSession::Reader in, msg::RemoveSession& out) {
  return read_name("name", in.getName(), out.name);
}

// ---- operations --------------------------------------------------------------------------------
static void write(ListPrefixes::Builder out, const msg::ListPrefixes& in) {
  if (in.model) out.setModel(as_data(*in.model));
  out.setLimit(in.limit);
  out.setAfter(as_data(in.after));
}
static Status read(ListPrefixes::Reader in, msg::ListPrefixes& out) {
  out.limit = in.getLimit();
  PRECIS_TRY(check_max("limit", out.limit, limits::kListPageRowsMax));
  PRECIS_TRY(read_cursor("after", in.getAfter(), out.after));
  if (!in.hasModel()) return {};
  return read_digest("model", in.getModel(), out.model.emplace());
}

static void write(ShowPrefix::Builder out, const msg::ShowPrefix& in) {
  out.setSegment(as_data(in.segment));
}
static Status read(ShowPrefix::Reader in, msg::ShowPrefix& out) {
  return read_segment_id("segment", in.getSegment(), out.segment);
}

static void write(FindPrefix::Builder out, const msg::FindPrefix& in) {
  out.setIdBeginning(as_text(in.id_beginning));
}
static Status read(FindPrefix::Reader in, msg::FindPrefix& out) {
  return read_name("id_beginning", in.getIdBeginning(), out.id_beginning);
}

static void write(RemovePrefix::Builder out, const msg::RemovePrefix& in) {
  out.setSegment(as_data(in.segment));
  out.setRecursive(in.recursive);
}
static Status read(RemovePrefix::Reader in, msg::RemovePrefix& out) {
  out.recursive = in.getRecursive();
  return read_segment_id("segment", in.getSegment(), out.segment);
}

static void write(CheckPrefix::Builder out, const msg::CheckPrefix& in) {
  out.setSegment(as_data(in.segment));
}
static Status read(CheckPrefix::Reader in, msg::CheckPrefix& out) {
  return read_segment_id("segment", in.getSegment(), out.segment);
}

static void write(TrimPrefix::Builder out, const msg::TrimPrefix& in) {
  out.setSegment(as_data(in.segment));
  write(out.initBudget(), in.budget);
  out.setDurability(static_cast<Durability>(in.durability));
  out.setDryRun(in.dry_run);
}
static Status read(TrimPrefix::Reader in, msg::TrimPrefix& out) {
  PRECIS_TRY(read_segment_id("segment", in.getSegment(), out.segment));
  PRECIS_TRY(read(in.getBudget(), out.budget).with_context("budget"));
  out.dry_run = in.getDryRun();
  return read_enum("durability", in.getDurability(), precis::Durability::kFsync, out.durability);
}

static void write(ShowBudget::Builder out, const msg::ShowBudget& in) {
  write(out.initScope(), in.scope);
}
static Status read(ShowBudget::Reader in, msg::ShowBudget& out) {
  return read(in.getScope(), out.scope);
}

static void write(SetBudget::Builder out, const msg::SetBudget& in) {
  write(out.initScope(), in.scope);
  if (in.recipe) out.setRecipe(as_text(*in.recipe));
  if (in.keep) write(out.initKeep(), *in.keep);
}
static Status read(SetBudget::Reader in, msg::SetBudget& out) {
  PRECIS_TRY(read(in.getScope(), out.scope));
  if (in.hasRecipe()) {
    PRECIS_TRY(read_text("recipe", in.getRecipe(), limits::kRecipeBytesMax, out.recipe.emplace()));
  }
  return read_optional(in.hasKeep(), "keep", in.getKeep(), out.keep);
}

// Requests without fields.
static void write(GetStats::Builder, const msg::GetStats&) {}
static Status read(GetStats::Reader, msg::GetStats&) { return {}; }
static void write(GetStatus::Builder, const msg::GetStatus&) {}
static Status read(GetStatus::Reader, msg::GetStatus&) { return {}; }
static void write(Ping::Builder, const msg::Ping&) {}
static Status read(Ping::Reader, msg::Ping&) { return {}; }

// ---- kinds --------------------------------------------------------------------------------------
// One overload per kind, so a new kind without an overload does not compile.
struct RequestWriter {
  Request::Builder out;
  void operator()(const msg::RegisterModel& in) { write(out.initRegisterModel(), in); }
  void operator()(const msg::ListModels& in) { write(out.initListModels(), in); }
  void operator()(const msg::BeginPut& in) { write(out.initBeginPut(), in); }
  void operator()(const msg::PushLayer& in) { write(out.initPushLayer(), in); }
  void operator()(const msg::CommitPut& in) { write(out.initCommitPut(), in); }
  void operator()(const msg::AbortPut& in) { write(out.initAbortPut(), in); }
  void operator()(const msg::Lookup& in) { write(out.initLookup(), in); }
  void operator()(const msg::Get& in) { write(out.initGet(), in); }
  void operator()(const msg::Cancel& in) { write(out.initCancel(), in); }
  void operator()(const msg::OpenSession& in) { write(out.initOpenSession(), in); }
  void operator()(const msg::AdvanceSession& in) { write(out.initAdvanceSession(), in); }
  void operator()(const msg::PinSession& in) { write(out.initPinSession(), in); }
  void operator()(const msg::ForkSession& in) { write(out.initForkSession(), in); }
  void operator()(const msg::ShowSession& in) { write(out.initShowSession(), in); }
  void operator()(const msg::ListSessions& in) { write(out.initListSessions(), in); }
  void operator()(const msg::RemoveSession& in) { write(out.initRemoveSession(), in); }
  void operator()(const msg::ListPrefixes& in) { write(out.initListPrefixes(), in); }
  void operator()(const msg::ShowPrefix& in) { write(out.initShowPrefix(), in); }
  void operator()(const msg::RemovePrefix& in) { write(out.initRemovePrefix(), in); }
  void operator()(const msg::ShowBudget& in) { write(out.initShowBudget(), in); }
  void operator()(const msg::SetBudget& in) { write(out.initSetBudget(), in); }
  void operator()(const msg::GetStats& in) { write(out.initGetStats(), in); }
  void operator()(const msg::GetStatus& in) { write(out.initGetStatus(), in); }
  void operator()(const msg::PushProjection& in) { write(out.initPushProjection(), in); }
  void operator()(const msg::AddProfile& in) { write(out.initAddProfile(), in); }
  void operator()(const msg::ListProfiles& in) { write(out.initListProfiles(), in); }
  void operator()(const msg::ShowProfile& in) { write(out.initShowProfile(), in); }
  void operator()(const msg::RemoveProfile& in) { write(out.initRemoveProfile(), in); }
  void operator()(const msg::CheckPrefix& in) { write(out.initCheckPrefix(), in); }
  void operator()(const msg::TrimPrefix& in) { write(out.initTrimPrefix(), in); }
  void operator()(const msg::Ping& in) { write(out.initPing(), in); }
  void operator()(const msg::FindPrefix& in) { write(out.initFindPrefix(), in); }
};

static Status read_body(Request::Reader in, msg::RequestBody& out) {
  switch (in.which()) {
    case Request::REGISTER_MODEL:
      return read(in.getRegisterModel(), out.emplace<msg::RegisterModel>());
    case Request::LIST_MODELS: return read(in.getListModels(), out.emplace<msg::ListModels>());
    case Request::BEGIN_PUT: return read(in.getBeginPut(), out.emplace<msg::BeginPut>());
    case Request::PUSH_LAYER: return read(in.getPushLayer(), out.emplace<msg::PushLayer>());
    case Request::COMMIT_PUT: return read(in.getCommitPut(), out.emplace<msg::CommitPut>());
    case Request::ABORT_PUT: return read(in.getAbortPut(), out.emplace<msg::AbortPut>());
    case Request::LOOKUP: return read(in.getLookup(), out.emplace<msg::Lookup>());
    case Request::GET: return read(in.getGet(), out.emplace<msg::Get>());
    case Request::CANCEL: return read(in.getCancel(), out.emplace<msg::Cancel>());
    case Request::OPEN_SESSION: return read(in.getOpenSession(), out.emplace<msg::OpenSession>());
    case Request::ADVANCE_SESSION:
      return read(in.getAdvanceSession(), out.emplace<msg::AdvanceSession>());
    case Request::PIN_SESSION: return read(in.getPinSession(), out.emplace<msg::PinSession>());
    case Request::FORK_SESSION: return read(in.getForkSession(), out.emplace<msg::ForkSession>());
    case Request::SHOW_SESSION: return read(in.getShowSession(), out.emplace<msg::ShowSession>());
    case Request::LIST_SESSIONS:
      return read(in.getListSessions(), out.emplace<msg::ListSessions>());
    case Request::REMOVE_SESSION:
      return read(in.getRemoveSession(), out.emplace<msg::RemoveSession>());
    case Request::LIST_PREFIXES:
      return read(in.getListPrefixes(), out.emplace<msg::ListPrefixes>());
    case Request::SHOW_PREFIX: return read(in.getShowPrefix(), out.emplace<msg::ShowPrefix>());
    case Request::REMOVE_PREFIX:
      return read(in.getRemovePrefix(), out.emplace<msg::RemovePrefix>());
    case Request::SHOW_BUDGET: return read(in.getShowBudget(), out.emplace<msg::ShowBudget>());
    case Request::SET_BUDGET: return read(in.getSetBudget(), out.emplace<msg::SetBudget>());
    case Request::GET_STATS: return read(in.getGetStats(), out.emplace<msg::GetStats>());
    case Request::GET_STATUS: return read(in.getGetStatus(), out.emplace<msg::GetStatus>());
    case Request::PUSH_PROJECTION:
      return read(in.getPushProjection(), out.emplace<msg::PushProjection>());
    case Request::ADD_PROFILE: return read(in.getAddProfile(), out.emplace<msg::AddProfile>());
    case Request::LIST_PROFILES:
      return read(in.getListProfiles(), out.emplace<msg::ListProfiles>());
    case Request::SHOW_PROFILE: return read(in.getShowProfile(), out.emplace<msg::ShowProfile>());
    case Request::REMOVE_PROFILE:
      return read(in.getRemoveProfile(), out.emplace<msg::RemoveProfile>());
    case Request::CHECK_PREFIX: return read(in.getCheckPrefix(), out.emplace<msg::CheckPrefix>());
    case Request::TRIM_PREFIX: return read(in.getTrimPrefix(), out.emplace<msg::TrimPrefix>());
    case Request::PING: return read(in.getPing(), out.emplace<msg::Ping>());
    case Request::FIND_PREFIX: return read(in.getFindPrefix(), out.emplace<msg::FindPrefix>());
  }
  return field_error("kind", "is " + std::to_string(in.which()) + ", unknown to protocol version " +
                                 std::to_string(kProtocolVersion));
}

static Status read(Request::Reader in, msg::Request& out) {
  out.id = in.getId();
  return read_body(in, out.body);
}

// Bytes of a request's arrays, so its message is allocated once.
static std::size_t payload_bytes(const msg::RequestBody& body) {
  if (const auto* put = std::get_if<msg::BeginPut>(&body))
    return put->tokens.size() * sizeof(TokenId);
  if (const auto* lookup = std::get_if<msg::Lookup>(&body)) {
    return lookup->tokens.size() * sizeof(TokenId);
  }
  std::size_t counts = 0;
  if (const auto* get = std::get_if<msg::Get>(&body)) {
    for (const msg::GetLink& link : get->links) counts += link.counts.size();
  }
  return counts * sizeof(std::uint32_t);
}

}  // namespace wire

std::vector<std::byte> encode(const msg::Request& request) {
  MessageWriter message(wire::payload_bytes(request.body));
  auto out = message.root<wire::Request>();
  out.setId(request.id);
  std::visit(wire::RequestWriter{out}, request.body);
  return message.take();
}

Result<msg::Request> decode_request(Bytes bytes) {
  return decode_root<wire::Request, msg::Request>("request", bytes, limits::kMessageBytesMax);
}

std::optional<std::uint64_t> request_id(Bytes bytes) {
  std::optional<std::uint64_t> id;
  const Status status =
      read_message("request", bytes, limits::kMessageBytesMax, [&](capnp::MessageReader& message) {
        id = message.getRoot<wire::Request>().getId();
        return Status();
      });
  if (!status.ok()) return std::nullopt;
  return id;
}

}  // namespace precis
