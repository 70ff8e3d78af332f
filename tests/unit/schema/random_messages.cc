#include "tests/unit/schema/random_messages.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "precis/hint_limits.h"
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
  void operator()(float& x) { x = static_cast<float>(r.number(1u << 20)) / 1024.0f; }
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
  void operator()(Dtype& x) { x = kDtypes[r.number(kDtypes.size() - 1)]; }
  void operator()(Encoding& x) { x = static_cast<Encoding>(r.number(2)); }
  void operator()(Budget& x) { x = {static_cast<Budget::Kind>(r.number(5)), r.random_()}; }
  void operator()(Status& x) {
    if (chance()) return;
    std::string message;
    (*this)(message);
    const auto code = static_cast<StatusCode>(1 + r.number(kStatusCodeMax - 1));
    x = Status(code, message,
               may_have_retry_after(code) ? static_cast<std::uint32_t>(r.random_()) : 0);
  }
  void operator()(ModelSpec& x) {
    all(x.name, x.revision, x.dtype, x.rope_theta, x.rope_scaling);
    x.name += "model";
    x.num_layers = 1 + up_to(limits::kLayersMax - 1);
    x.num_kv_heads = 1 + up_to(31);
    x.num_q_heads = x.num_kv_heads * (1 + up_to(15));
    x.head_dim = 1 + up_to(limits::kHeadDimMax - 1);
    x.block_tokens = 1 + up_to(limits::kBlockTokensMax - 1);
    x.windows.assign(up_to(1) * x.num_layers, 2 + up_to(4096));
  }
  void operator()(Plan& x) {
    x = {up_to(4), up_to(3), {}};
    x.counts.resize(std::size_t{x.num_layers} * x.num_kv_heads);
    for (auto& count : x.counts) (*this)(count);
  }
  void operator()(Durability& x) { x = static_cast<Durability>(r.number(2)); }
  void operator()(MemorySpace& x) { x = static_cast<MemorySpace>(r.number(1)); }
  void operator()(msg::BeginPut::ParentKind& x) {
    x = static_cast<msg::BeginPut::ParentKind>(r.number(2));
  }

  void operator()(msg::KvEvent::Kind& x) { x = static_cast<msg::KvEvent::Kind>(r.number(3)); }
  void operator()(msg::KvEvent::Tier& x) { x = static_cast<msg::KvEvent::Tier>(r.number(1)); }
  void operator()(msg::KvEvent::Cause& x) { x = static_cast<msg::KvEvent::Cause>(r.number(4)); }

  // ---- structs of the schemas: each field, and then those with a narrower range than their type
  template <typename T>
  requires requires { Fields<T>::all; }
  void operator()(T& x) {
    for_each_field(x, [this](const char*, auto& field) { (*this)(field); });
    narrow(x);
  }
  template <typename T>
  requires std::is_empty_v<T>
  void operator()(T&) {}

  template <typename T>
  void narrow(T&) {}
  void narrow(RemoteRegion& x) { x.size_bytes = r.number(~x.address); }
  void narrow(msg::BeginPut& x) {
    x.writers = 1 + up_to(limits::kWritersMax - 1);
    x.parent_end = up_to(limits::kPathTokensMax);
    prefill(x);
  }
  void narrow(msg::CommitPut& x) { prefill(x); }
  void narrow(msg::SetRetention& x) {
    x.priority = up_to(limits::kPriorityMax);
    if (x.ttl_seconds) *x.ttl_seconds = r.number(limits::kHintSecondsMax);
  }
  void narrow(msg::PushLayer& x) {
    x.layer = up_to(limits::kLayersMax - 1);
    heads(x.head_begin, x.head_count);
    x.token_begin = up_to(limits::kPathTokensMax);
    x.token_count = up_to(limits::kPathTokensMax - x.token_begin);
    x.num_queries = up_to(limits::kObservationQueriesMax);
    x.keys_head_stride = r.number(x.keys.size_bytes);
    x.values_head_stride = r.number(x.values.size_bytes);
  }
  void narrow(msg::Hints& x) {
    if (x.priority) *x.priority = up_to(limits::kPriorityMax);
    if (x.ttl_seconds) *x.ttl_seconds = r.number(limits::kHintSecondsMax);
    if (x.expect_reuse_in_seconds) *x.expect_reuse_in_seconds = r.number(limits::kHintSecondsMax);
  }
  template <typename Message>
  void prefill(Message& x) {
    x.prefill_seconds = std::min(x.prefill_seconds, limits::kPrefillSecondsMax);
  }
  template <typename Segment>
  void hinted(Segment& x) {
    x.priority = up_to(limits::kPriorityMax);
    x.ttl_seconds = r.number(limits::kHintSecondsMax);
    prefill(x);
  }
  void narrow(msg::Lookup& x) { x.align = 1 + up_to(limits::kAlignMax - 1); }
  void narrow(msg::GetLink& x) {
    x.matched_end = up_to(limits::kPathTokensMax);
    counts(x.counts);
  }
  void narrow(msg::Get& x) {
    heads(x.head_begin, x.head_count);
    if (x.shard) x.shard = up_to(limits::kShards - 1);
  }
  void narrow(msg::ListPrefixes& x) { x.limit = up_to(limits::kListPageRowsMax); }
  void narrow(msg::ListEvents& x) { x.limit = up_to(limits::kListPageRowsMax); }
  void narrow(msg::KvEvent& x) {
    token_range(x.begin, x.end);
    x.block_tokens = up_to(limits::kBlockTokensMax);
  }
  void narrow(msg::PushProjection& x) {
    x.layer = up_to(limits::kLayersMax - 1);
    x.width = 1 + up_to(limits::kHiddenMax - 1);
    if (x.dtype == Dtype::kF8E4M3) x.dtype = Dtype::kBf16;
  }
  void narrow(msg::ModelRow& x) { x.projections = up_to(limits::kLayersMax); }
  void narrow(msg::PutBegun& x) { token_range(x.begin, x.end); }
  void narrow(msg::SegmentInfo& x) {
    token_range(x.begin, x.end);
    hinted(x);
  }
  void narrow(msg::MatchLink& x) {
    x.matched_end = up_to(x.segment.end);
    counts(x.counts);
  }
  void narrow(msg::PassedMatch& x) {
    if (x.shard) x.shard = up_to(limits::kShards - 1);
  }
  void narrow(msg::Match& x) {
    x.matched_tokens = up_to(limits::kPathTokensMax);
    x.also_at.resize(std::min(x.also_at.size(), limits::kCopiesMax));
  }
  void narrow(msg::SessionRow& x) {
    x.tip_end = up_to(limits::kPathTokensMax);
    if (x.shard) *x.shard = up_to(limits::kShards - 1);
  }
  void narrow(msg::Fork& x) { x.blocks = up_to(limits::kPathTokensMax); }
  void narrow(msg::ClusterNode& x) { x.shards = up_to(limits::kShards); }
  void narrow(msg::ClusterState& x) {
    x.owners.resize(chance() ? limits::kShards : 0);
    const auto nodes = static_cast<std::uint32_t>(x.nodes.size());
    for (std::uint32_t& owner : x.owners) owner = nodes == 0 ? ~0u : up_to(nodes - 1);
  }
  void narrow(msg::LayerServed& x) {
    x.layer = up_to(limits::kLayersMax - 1);
    counts(x.counts);
    x.tail_checksums.resize(x.counts.size());
  }
  void narrow(SegmentRow& x) {
    token_range(x.begin, x.end);
    if (x.shard) *x.shard = up_to(limits::kShards - 1);
    hinted(x);
    x.layer_bytes.resize(x.plan.num_layers);
  }
  void narrow(StoredProjection& x) {
    x.layer = up_to(limits::kLayersMax - 1);
    x.width = up_to(limits::kHiddenMax);
  }
  void narrow(StoredTenant& x) {
    x.name += "tenant";
    x.role = role_name(static_cast<Role>(r.number(2)));
    x.weight = 1 + up_to(limits::kTenantWeightMax - 1);
    x.tokens.resize(1 + r.number(limits::kTokensPerTenantMax - 1));
    for (StoredToken& token : x.tokens) token.text += "token";
  }

  void token_range(std::uint32_t& begin, std::uint32_t& end) {
    end = up_to(limits::kPathTokensMax);
    begin = up_to(end);
  }
  void heads(std::uint32_t& begin, std::uint32_t& count) {
    begin = up_to(limits::kKvHeadsMax);
    count = up_to(limits::kKvHeadsMax - begin);
  }
  void counts(std::vector<std::uint32_t>& x) {
    x.resize(r.number(9));
    for (auto& count : x) count = up_to(limits::kPathTokensMax);
  }
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
                    welcome.rdma, welcome.clustered);
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

msg::ServerMessage RandomMessages::layer_served() { return filled<msg::LayerServed>(*this); }

SegmentRow RandomMessages::segment_row() { return filled<SegmentRow>(*this); }
StoredSession RandomMessages::stored_session() { return filled<StoredSession>(*this); }
StoredModel RandomMessages::stored_model() { return filled<StoredModel>(*this); }
StoredBudget RandomMessages::stored_budget() { return filled<StoredBudget>(*this); }
StoredProjection RandomMessages::stored_projection() { return filled<StoredProjection>(*this); }
StoredProfile RandomMessages::stored_profile() { return filled<StoredProfile>(*this); }
StoredRevision RandomMessages::stored_revision() { return filled<StoredRevision>(*this); }
StoredTenant RandomMessages::stored_tenant() { return filled<StoredTenant>(*this); }

}  // namespace precis::testing
