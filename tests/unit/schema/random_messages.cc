#include "tests/unit/schema/random_messages.h"

#include <array>
#include <utility>

#include "precis/limits.h"

namespace precis::testing {

// Fills a field according to its type. Fields with a narrower range than their type are set
// afterwards.
struct Filler {
  RandomMessages& r;

  bool chance() { return r.number(1) == 1; }
  std::uint32_t up_to(std::uint32_t max) { return static_cast<std::uint32_t>(r.number(max)); }

  void operator()(bool& x) { x = chance(); }
  void operator()(std::uint32_t& x) { x = static_cast<std::uint32_t>(r.random_()); }
  void operator()(std::uint64_t& x) { x = r.random_(); }
  void operator()(double& x) { x = static_cast<double>(r.number(1u << 30)) / 1024.0; }
  void operator()(std::string& x) {
    static constexpr std::array<std::string_view, 5> kPieces = {"a", "Z9", "/", "\u00e9",
                                                                "\U0001f512"};
    x.clear();
    for (std::uint64_t n = r.number(12); n > 0; --n) x += kPieces[r.number(kPieces.size() - 1)];
  }
  template <std::size_t N>
  void operator()(std::array<std::uint8_t, N>& x) {
    for (auto& byte : x) byte = static_cast<std::uint8_t>(r.random_());
  }
  template <std::size_t N>
  void operator()(std::array<std::byte, N>& x) {
    for (auto& byte : x) byte = static_cast<std::byte>(r.random_());
  }
  void operator()(Digest& x) { (*this)(x.bytes); }
  void operator()(SegmentId& x) {
    if (chance()) (*this)(x.bytes);  // otherwise null
  }
  template <typename T>
  void operator()(std::optional<T>& x) {
    if (chance()) (*this)(x.emplace());
  }
  template <typename T>
  void operator()(std::vector<T>& x) {
    x.resize(r.number(5));
    for (T& item : x) (*this)(item);
  }
  template <typename... Fields>
  void all(Fields&... fields) {
    ((*this)(fields), ...);
  }

  // ---- shared types
  void operator()(Dtype& x) { x = static_cast<Dtype>(1 + r.number(2)); }
  void operator()(Budget& x) { x = {static_cast<Budget::Kind>(r.number(3)), r.random_()}; }
  void operator()(Status& x) {
    if (chance()) return;
    std::string message;
    (*this)(message);
    x = Status(static_cast<StatusCode>(1 + r.number(kStatusCodeMax - 1)), message);
    if (x.code() == StatusCode::kRejected) {
      x = Status::rejected(message, static_cast<std::uint32_t>(r.random_()));
    }
  }
  void operator()(ModelSpec& x) {
    all(x.name, x.revision, x.dtype, x.rope_theta, x.rope_scaling);
    x.name += "model";
    x.num_layers = 1 + up_to(limits::kLayersMax - 1);
    x.num_kv_heads = 1 + up_to(31);
    x.num_q_heads = x.num_kv_heads * (1 + up_to(15));
    x.head_dim = 1 + up_to(limits::kHeadDimMax - 1);
    x.block_tokens = 1 + up_to(limits::kBlockTokensMax - 1);
  }
  void operator()(Plan& x) {
    x = {up_to(4), up_to(3), {}};
    x.counts.resize(std::size_t{x.num_layers} * x.num_kv_heads);
    for (auto& count : x.counts) (*this)(count);
  }
  void operator()(RemoteRegion& x) {
    all(x.id, x.address, x.key, x.buffer, x.buffer_offset, x.slot);
    x.space = static_cast<MemorySpace>(r.number(1));
    x.size_bytes = r.number(~x.address);
  }
  void token_range(std::uint32_t& begin, std::uint32_t& end) {
    end = up_to(limits::kPathTokensMax);
    begin = up_to(end);
  }

  // ---- requests
  void operator()(msg::RegisterModel& x) { (*this)(x.model); }
  void operator()(msg::ListModels& x) { (*this)(x.after); }
  void operator()(msg::BeginPut& x) {
    all(x.model, x.adapter, x.tokens, x.parent, x.recipe, x.budget, x.parent_read);
    x.parent_kind = static_cast<msg::BeginPut::ParentKind>(r.number(2));
    x.writers = 1 + up_to(limits::kWritersMax - 1);
  }
  void operator()(msg::PushLayer& x) {
    all(x.put, x.dtype, x.keys, x.values, x.queries, x.lse, x.query_mean, x.query_covariance,
        x.scores);
    x.layer = up_to(limits::kLayersMax - 1);
    x.head_begin = up_to(limits::kKvHeadsMax);
    x.head_count = up_to(limits::kKvHeadsMax - x.head_begin);
    x.token_begin = up_to(limits::kPathTokensMax);
    x.token_count = up_to(limits::kPathTokensMax - x.token_begin);
    x.num_queries = up_to(limits::kObservationQueriesMax);
    x.keys_head_stride = r.number(x.keys.size_bytes);
    x.values_head_stride = r.number(x.values.size_bytes);
  }
  void operator()(msg::CommitPut& x) {
    (*this)(x.put);
    x.durability = static_cast<Durability>(r.number(2));
  }
  void operator()(msg::AbortPut& x) { (*this)(x.put); }
  void operator()(msg::Lookup& x) {
    all(x.model, x.adapter, x.tokens, x.keep, x.lease_ms);
    x.align = 1 + up_to(limits::kAlignMax - 1);
  }
  void counts(std::vector<std::uint32_t>& x) {
    x.resize(r.number(5));
    for (auto& count : x) count = up_to(limits::kPathTokensMax);
  }
  void operator()(msg::GetLink& x) {
    all(x.segment, x.entries, x.created_unix_ms, x.stored_entries);
    x.matched_end = up_to(limits::kPathTokensMax);
    counts(x.counts);
  }
  void operator()(msg::Get& x) {
    all(x.links, x.budget, x.destination);
    x.head_begin = up_to(limits::kKvHeadsMax);
    x.head_count = up_to(limits::kKvHeadsMax - x.head_begin);
  }
  void operator()(msg::Cancel& x) { (*this)(x.request); }
  void operator()(msg::OpenSession& x) { all(x.name, x.ttl_seconds); }
  void operator()(msg::AdvanceSession& x) { all(x.name, x.tip); }
  void operator()(msg::PinSession& x) { all(x.name, x.pinned); }
  void operator()(msg::ForkSession& x) { all(x.name, x.new_name); }
  void operator()(msg::ShowSession& x) { (*this)(x.name); }
  void operator()(msg::ListSessions& x) { (*this)(x.after); }
  void operator()(msg::RemoveSession& x) { (*this)(x.name); }
  void operator()(msg::ListPrefixes& x) {
    all(x.model, x.after);
    x.limit = up_to(limits::kListPageRowsMax);
  }
  void operator()(msg::ShowPrefix& x) { (*this)(x.segment); }
  void operator()(msg::FindPrefix& x) { (*this)(x.id_beginning); }
  void operator()(msg::RemovePrefix& x) { all(x.segment, x.recursive); }
  void operator()(msg::CheckPrefix& x) { (*this)(x.segment); }
  void operator()(msg::TrimPrefix& x) {
    all(x.segment, x.budget, x.dry_run);
    x.durability = static_cast<Durability>(r.number(2));
  }
  void operator()(msg::ShowBudget& x) { (*this)(x.scope.model); }
  void operator()(msg::SetBudget& x) { all(x.scope.model, x.recipe, x.keep); }
  void operator()(msg::GetStats&) {}
  void operator()(msg::GetStatus&) {}
  void operator()(msg::Ping&) {}
  void operator()(msg::PushProjection& x) {
    all(x.model, x.dtype, x.weights);
    x.layer = up_to(limits::kLayersMax - 1);
    x.width = 1 + up_to(limits::kHiddenMax - 1);
  }
  void operator()(msg::AddProfile& x) { (*this)(x.json); }
  void operator()(msg::ListProfiles& x) { (*this)(x.model); }
  void operator()(msg::ShowProfile& x) { all(x.model, x.name); }
  void operator()(msg::RemoveProfile& x) { all(x.model, x.name); }

  // ---- replies
  void operator()(msg::Done&) {}
  void operator()(msg::ModelRow& x) {
    all(x.model, x.fingerprint, x.segments);
    x.projections = up_to(limits::kLayersMax);
  }
  void operator()(msg::Models& x) { (*this)(x.rows); }
  void operator()(msg::PutBegun& x) {
    all(x.put, x.parent, x.segment, x.already_stored, x.recipe, x.entries);
    token_range(x.begin, x.end);
  }
  void operator()(msg::SegmentInfo& x) {
    all(x.id, x.parent, x.model, x.adapter, x.recipe, x.preset, x.budget, x.parent_read, x.entries);
    all(x.original_bytes, x.stored_bytes, x.compress_seconds, x.created_unix_ms, x.hits,
        x.children);
    all(x.in_memory, x.out_of_service, x.plan, x.trimmed);
    token_range(x.begin, x.end);
  }
  void operator()(msg::Segments& x) { (*this)(x.rows); }
  void operator()(msg::MatchLink& x) {
    (*this)(x.segment);
    x.matched_end = up_to(x.segment.end);
    counts(x.counts);
  }
  void operator()(msg::Match& x) {
    all(x.links, x.plan, x.bytes, x.predicted_seconds, x.lease_ms);
    x.matched_tokens = up_to(limits::kPathTokensMax);
  }
  void operator()(msg::GetDone& x) { (*this)(x.bytes); }
  void operator()(msg::SessionRow& x) {
    all(x.name, x.tip, x.turns, x.ttl_seconds, x.expires_unix_ms, x.pinned, x.updated_unix_ms);
    x.tip_end = up_to(limits::kPathTokensMax);
  }
  void operator()(msg::Sessions& x) { (*this)(x.rows); }
  void operator()(msg::Removed& x) { all(x.segments, x.bytes); }
  void operator()(msg::Checked& x) { all(x.bytes, x.damage); }
  void operator()(msg::Trimmed& x) { all(x.entries, x.stored_bytes, x.freed_bytes); }
  void operator()(msg::BudgetRow& x) { all(x.scope, x.recipe, x.keep, x.version, x.set_unix_ms); }
  void operator()(msg::Budgets& x) { all(x.layers, x.effective); }
  void operator()(msg::Stat& x) { all(x.name, x.value, x.help); }
  void operator()(msg::Stats& x) { (*this)(x.rows); }
  void operator()(msg::ServerStatus& x) {
    all(x.server, x.tenant, x.data_dir, x.transport, x.device, x.rdma, x.uptime_seconds,
        x.segments);
    all(x.sessions, x.models, x.stored_bytes, x.memory_bytes, x.memory_limit_bytes,
        x.segments_out_of_service, x.disk_free_bytes, x.disk_min_free_bytes, x.disk_low,
        x.disk_fault);
    all(x.exposed, x.doubtful_recovery, x.lost_changes, x.kept_bytes, x.kept_log_bytes);
  }

  void operator()(msg::ProfileRow& x) {
    all(x.name, x.kind, x.model, x.scorer, x.digest, x.num_tokens, x.text_digest);
    all(x.added_unix_ms, x.json);
  }
  void operator()(msg::Profiles& x) { (*this)(x.rows); }

  // ---- rows
  void operator()(SegmentRow& x) {
    all(x.id, x.parent, x.tenant, x.model, x.adapter, x.root, x.tip, x.blocks, x.tail, x.recipe);
    all(x.preset, x.budget, x.parent_read, x.plan, x.original_bytes, x.stored_bytes);
    all(x.compress_seconds, x.created_unix_ms, x.hits, x.trimmed);
    token_range(x.begin, x.end);
    x.layer_bytes.resize(x.plan.num_layers);
    for (auto& bytes : x.layer_bytes) (*this)(bytes);
  }
  void operator()(StoredSession& x) { all(x.tenant, x.row); }
  void operator()(StoredModel& x) { all(x.tenant, x.model); }
  void operator()(StoredBudget& x) {
    all(x.tenant, x.model, x.recipe, x.keep, x.version, x.set_unix_ms);
  }
  void operator()(StoredProjection& x) {
    all(x.tenant, x.model, x.dtype, x.weights_bytes, x.grams_bytes, x.weights, x.grams);
    x.layer = up_to(limits::kLayersMax - 1);
    x.width = up_to(limits::kHiddenMax);
  }
  void operator()(StoredProfile& x) { all(x.tenant, x.json, x.added_unix_ms); }
};

namespace {

template <typename Variant, std::size_t... I>
Variant alternative(std::size_t kind, std::index_sequence<I...>) {
  Variant v;
  ((kind == I ? void(v.template emplace<I>()) : void()), ...);
  return v;
}

template <typename Variant>
Variant filled(RandomMessages& random, std::size_t kind) {
  auto v = alternative<Variant>(kind, std::make_index_sequence<std::variant_size_v<Variant>>());
  std::visit(Filler{random}, v);
  return v;
}

template <typename T>
T filled(RandomMessages& random) {
  T value;
  Filler{random}(value);
  return value;
}

}  // namespace

std::uint64_t RandomMessages::number(std::uint64_t max) {
  return std::uniform_int_distribution<std::uint64_t>(0, max)(random_);
}

std::vector<std::byte> RandomMessages::bytes(std::size_t count) {
  std::vector<std::byte> out(count);
  for (auto& b : out) b = static_cast<std::byte>(random_());
  return out;
}

Challenge RandomMessages::challenge() {
  Challenge challenge;
  Filler{*this}.all(challenge.protocol_version, challenge.nonce);
  return challenge;
}

Hello RandomMessages::hello() {
  Hello hello;
  hello.protocol_version = kProtocolVersion;
  Filler{*this}.all(hello.client, hello.tenant, hello.nonce, hello.proof);
  return hello;
}

Welcome RandomMessages::welcome() {
  Welcome welcome;
  Filler{*this}.all(welcome.status, welcome.protocol_version, welcome.server, welcome.keyed,
                    welcome.connection, welcome.secret, welcome.proof, welcome.unix_path,
                    welcome.rdma);
  return welcome;
}

Bind RandomMessages::bind() {
  Bind bind;
  Filler{*this}.all(bind.connection, bind.proof);
  return bind;
}

RdmaTurn RandomMessages::rdma_turn(bool with_window) {
  RdmaTurn turn;
  if (with_window) {
    Filler{*this}.all(turn.window, turn.window_key);
  } else {
    Filler{*this}.all(turn.device, turn.endpoint);
  }
  return turn;
}

msg::Request RandomMessages::request(std::size_t kind) {
  return {random_(), filled<msg::RequestBody>(*this, kind)};
}

msg::ServerMessage RandomMessages::reply(std::size_t kind) {
  msg::Reply reply;
  reply.id = random_();
  Filler{*this}(reply.status);
  reply.body = filled<msg::ReplyBody>(*this, kind);
  return reply;
}

msg::ServerMessage RandomMessages::layer_served() {
  msg::LayerServed served;
  served.id = random_();
  served.layer = static_cast<std::uint32_t>(number(limits::kLayersMax - 1));
  served.offset = random_();
  served.counts.resize(number(9));
  for (auto& count : served.counts)
    count = static_cast<std::uint32_t>(number(limits::kPathTokensMax));
  served.tail_checksums.resize(served.counts.size());
  for (auto& checksum : served.tail_checksums) Filler{*this}(checksum);
  return served;
}

SegmentRow RandomMessages::segment_row() { return filled<SegmentRow>(*this); }
StoredSession RandomMessages::stored_session() { return filled<StoredSession>(*this); }
StoredModel RandomMessages::stored_model() { return filled<StoredModel>(*this); }
StoredBudget RandomMessages::stored_budget() { return filled<StoredBudget>(*this); }
StoredProjection RandomMessages::stored_projection() { return filled<StoredProjection>(*this); }
StoredProfile RandomMessages::stored_profile() { return filled<StoredProfile>(*this); }

}  // namespace precis::testing
