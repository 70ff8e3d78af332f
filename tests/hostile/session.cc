#include "tests/hostile/session.h"

#include <algorithm>
#include <numeric>

#include "precis/block_digest.h"

namespace precis::hostile {
namespace {

constexpr std::uint32_t kTokens = 64, kPaths = 24;
constexpr std::size_t kDestinationBytes = 192u << 10;

ModelSpec model_spec() {
  ModelSpec spec;
  spec.name = "hostile/small";
  spec.num_layers = 2;
  spec.num_q_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 32;
  spec.dtype = Dtype::kF32;
  spec.block_tokens = 16;
  return spec;
}

std::vector<TokenId> path(std::uint32_t seed) {
  std::vector<TokenId> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 1000 * (seed % kPaths));
  return tokens;
}

bool done(const std::optional<msg::Reply>& reply) { return reply && reply->status.ok(); }

template <typename T>
const T* body_of(const std::optional<msg::Reply>& reply) {
  return done(reply) ? std::get_if<T>(&reply->body) : nullptr;
}

class Session {
 public:
  Session(Talk& talk, const Plan& plan)
      : talk_(talk), plan_(plan), model_(model_fingerprint(model_spec())) {}

  bool put() {
    msg::BeginPut begin;
    begin.model = model_;
    begin.tokens = path(plan_.seed);
    begin.recipe = "global_kvdiff(min_entries=16)";
    const auto begun = talk_.call(begin);
    const auto* const put = body_of<msg::PutBegun>(begun);
    // A changed session continues as if it knew the answer.
    const std::uint64_t id = put != nullptr ? put->put : 1;
    bool ok = put != nullptr;
    for (std::uint32_t l = 0; l < 2 && (!ok || !put->already_stored); ++l) ok &= push(id, l);
    // A client that has stopped waiting for a commit asks again.
    const auto first = talk_.send(msg::CommitPut{id, Durability::kMemory});
    const auto again = talk_.send(msg::CommitPut{id, Durability::kMemory});
    ok &= done(talk_.await(first));
    ok &= done(talk_.await(again));
    return leave() && ok;
  }

  bool get() {
    msg::Lookup lookup{model_, "", path(plan_.seed)};
    if (plan_.seed % 2 == 0) lookup.align = 4;  // so that the match has counts
    const auto looked_up = talk_.call(lookup);
    const auto* const match = body_of<msg::Match>(looked_up);
    msg::Get get;
    get.destination = talk_.expose(64u << 10, kDestinationBytes, shared());
    if (match == nullptr) {
      get.links.push_back({});
      talk_.call(get);
      return false;
    }
    for (const msg::MatchLink& link : match->links) {
      get.links.push_back({link.segment.id, link.matched_end, 0, link.counts});
    }
    segment_ = match->links.empty() ? SegmentId() : match->links.back().segment.id;
    return match->links.empty() || plan_.bulk == Plan::Bulk::kNone || done(talk_.call(get));
  }

  bool operate() {
    bool ok = done(talk_.call(msg::GetStatus{})) && done(talk_.call(msg::GetStats{}));
    ok &= done(talk_.call(msg::ListModels{})) && done(talk_.call(msg::ListPrefixes{}));
    ok &= done(talk_.call(msg::ShowBudget{}));
    talk_.call(msg::ShowPrefix{segment_});
    talk_.call(msg::TrimPrefix{segment_, Budget::all(), Durability::kMemory, true});
    talk_.call(msg::SetRetention{segment_, static_cast<std::uint32_t>(plan_.seed % 101), {}});
    if (plan_.seed % 3 == 0) talk_.call(msg::RemovePrefix{segment_, true});
    return ok;
  }

  bool sessions() {
    const std::string name = "hostile " + std::to_string(plan_.seed % kPaths);
    bool ok = done(talk_.call(msg::OpenSession{name, 60}));
    talk_.call(msg::AdvanceSession{name, segment_});
    ok &= done(talk_.call(msg::ListSessions{}));
    talk_.call(msg::RemoveSession{name});
    return ok;
  }

 private:
  // Aborts a put whose commit waits for another writer that never comes.
  bool leave() {
    msg::BeginPut begin;
    begin.model = model_;
    begin.tokens = path(plan_.seed + 1);
    begin.writers = 2;
    const auto begun = talk_.call(begin);
    const auto* const put = body_of<msg::PutBegun>(begun);
    const std::uint64_t id = put != nullptr ? put->put : 1;
    const auto commit = talk_.send(msg::CommitPut{id, Durability::kMemory});
    const bool left = done(talk_.call(msg::AbortPut{id}));
    return !done(talk_.await(commit)) && left;
  }
  bool shared() const { return plan_.bulk == Plan::Bulk::kShared; }

  bool push(std::uint64_t put, std::uint32_t layer) {
    constexpr std::size_t kHeadBytes = kTokens * 32 * sizeof(float);
    msg::PushLayer push;
    push.put = put;
    push.layer = layer;
    push.head_count = 2;
    push.token_count = kTokens;
    push.dtype = Dtype::kF32;
    push.keys = talk_.expose(0, 2 * kHeadBytes, shared());
    push.values = talk_.expose(2 * kHeadBytes, 2 * kHeadBytes, shared());
    push.keys_head_stride = push.values_head_stride = kHeadBytes;
    return done(talk_.call(push));
  }

  Talk& talk_;
  const Plan& plan_;
  const Digest model_;
  SegmentId segment_;
};

}  // namespace

Plan random_plan(std::mt19937& random) {
  Plan plan;
  plan.control_over_unix = random() % 2 == 0;
  plan.bulk = static_cast<Plan::Bulk>(random() % 4);
  plan.parts = 1u << random() % kParts;
  if (random() % 4 == 0) plan.parts |= 1u << random() % kParts;
  plan.seed = static_cast<std::uint32_t>(random() % 1000);
  return plan;
}

bool run_session(Talk& talk, const Login& login, const Plan& plan) {
  bool ok = talk.greet(login).ok();
  const bool over_unix = plan.bulk == Plan::Bulk::kUnix || plan.bulk == Plan::Bulk::kShared;
  if (plan.bulk != Plan::Bulk::kNone) ok &= talk.bind(over_unix);
  if (plan.bulk == Plan::Bulk::kShared) ok &= talk.share();
  Session session(talk, plan);
  ok &= done(talk.call(msg::RegisterModel{model_spec()}));
  if ((plan.parts & 1) != 0 && !talk.is_over())
    ok &= session.put() || plan.bulk == Plan::Bulk::kNone;
  if ((plan.parts & 2) != 0 && !talk.is_over()) ok &= session.get();
  if ((plan.parts & 4) != 0 && !talk.is_over()) ok &= session.operate();
  if ((plan.parts & 8) != 0 && !talk.is_over()) ok &= session.sessions();
  return ok;
}

}  // namespace precis::hostile
