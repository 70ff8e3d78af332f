// The checks of a put, its messages, and its ends.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kBegin = 4, kEnd = 12, kNew = kEnd - kBegin;

std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// Takes every push, and keeps its message and bytes.
struct Taken {
  msg::PushLayer message;
  std::vector<std::byte> keys, values, queries, scores;
};
class PutServer {
 public:
  PutServer() : server([this](FakeServer& self, msg::Request r) { on(self, std::move(r)); }) {}

  bool already_stored = false;
  bool silent = false;  // pushes are not answered
  Status push_status, commit_status, abort_status;
  std::vector<Taken> taken;
  FakeServer server;

  // How many requests of type T have arrived, once all earlier messages have.
  template <typename T>
  int count(Client& client) {
    (void)client.models();
    int n = 0;
    server.on_loop([&] {
      for (const msg::Request& request : server.seen())
        n += std::holds_alternative<T>(request.body);
    });
    return n;
  }

 private:
  void on(FakeServer& self, msg::Request request) {
    const std::uint64_t id = request.id;
    if (std::holds_alternative<msg::BeginPut>(request.body)) {
      msg::PutBegun begun;
      begun.put = 77;
      begun.begin = kBegin;
      begun.end = kEnd;
      begun.already_stored = already_stored;
      return self.reply(id, begun);
    }
    if (std::holds_alternative<msg::ListModels>(request.body)) return self.reply(id, msg::Models{});
    if (std::holds_alternative<msg::CommitPut>(request.body)) {
      if (!commit_status.ok()) return self.refuse(id, std::exchange(commit_status, {}));
      return self.reply(id, msg::SegmentInfo{});
    }
    if (std::holds_alternative<msg::AbortPut>(request.body)) return self.refuse(id, abort_status);
    if (!push_status.ok()) return self.refuse(id, push_status);
    if (!silent) take(self, id, std::get<msg::PushLayer>(request.body));
  }

  // Pulls region after region, then answers.
  void take(FakeServer& self, std::uint64_t id, const msg::PushLayer& message) {
    auto one = std::make_shared<Taken>();
    one->message = message;
    const auto finish = [this, &self, id, one] {
      taken.push_back(*one);
      self.reply(id, msg::Done{});
    };
    const auto pull_scores = [&self, one, finish](auto) {
      if (!one->message.scores) return finish();
      self.pull(*one->message.scores, one->message.scores->size_bytes, [one, finish](auto bytes) {
        one->scores = std::move(bytes);
        finish();
      });
    };
    const auto pull_queries = [&self, one, pull_scores](auto bytes) {
      one->values = std::move(bytes);
      if (!one->message.queries) return pull_scores(0);
      self.pull(*one->message.queries, one->message.queries->size_bytes,
                [one, pull_scores](auto queries) {
                  one->queries = std::move(queries);
                  pull_scores(0);
                });
    };
    self.pull(message.keys, message.keys.size_bytes, [&self, one, pull_queries](auto bytes) {
      one->keys = std::move(bytes);
      self.pull(one->message.values, one->message.values.size_bytes, pull_queries);
    });
  }
};

class PutFixture {
 protected:
  PutServer fake;
  std::shared_ptr<Client> client = fake.server.connect().value();
  const ModelSpec spec = small_model(Dtype::kF32);
  const std::vector<float> rows = counting(4096);

  Put begin() {
    const std::vector<TokenId> tokens(kEnd, 1);
    return client->begin_put(Model{spec, {}, {}}, tokens).value();
  }
  HeadsView heads(std::uint32_t num_heads, std::uint32_t num_tokens) const {
    return HeadsView::packed(rows.data(), num_heads, num_tokens, spec.head_dim, spec.dtype);
  }
  LayerPush good() const {
    LayerPush push;
    push.keys = push.values = heads(spec.num_kv_heads, kNew);
    return push;
  }
};

TEST_CASE_METHOD(PutFixture, "a wrong push is refused here, naming what is wrong", "[client]") {
  LayerPush push = good();
  std::uint32_t layer = 1;
  std::string said;
  SECTION("layer") {
    layer = spec.num_layers;
    said = "layers 0 to 2";
  }
  SECTION("no keys") {
    push.keys = {};
    said = "keys are missing";
  }
  SECTION("no values") {
    push.values = {};
    said = "values are missing";
  }
  SECTION("dtype") {
    push.values.dtype = Dtype::kBf16;
    said = "values are bf16, the model's are f32";
  }
  SECTION("head_dim") {
    push.keys.head_dim = 4;
    said = "head_dim 4, the model has 8";
  }
  SECTION("too many heads") {
    push.keys = push.values = heads(spec.num_kv_heads + 1, kNew);
    said = "keys are [3, 8, 8] from head 0";
  }
  SECTION("heads past the last") {
    push.head_begin = 1;
    said = "keys are [2, 8, 8] from head 1";
  }
  SECTION("no heads") {
    push.keys.num_heads = push.values.num_heads = 0;
    said = "keys are [0, 8, 8]";
  }
  SECTION("heads that overlap in memory") {
    push.keys.head_stride_bytes = 8;
    said = "heads 8 B apart";
  }
  SECTION("values unlike keys") {
    push.values = heads(spec.num_kv_heads, kNew - 1);
    said = "must have the same shape";
  }
  SECTION("too many tokens") {
    push.keys = push.values = heads(spec.num_kv_heads, kNew + 1);
    said = "keys are of 9 tokens from token 0";
  }
  SECTION("no tokens") {
    push.keys.num_tokens = push.values.num_tokens = 0;
    said = "keys are of 0 tokens";
  }
  SECTION("tokens past the last") {
    push.token_begin = 1;
    said = "keys are of 8 tokens from token 1";
  }
  SECTION("heads of queries") {
    push.queries = heads(spec.num_kv_heads, 2);
    said = "need 4";
  }
  SECTION("more queries than tokens") {
    push.queries = heads(spec.num_q_heads, kNew + 1);
    said = "the last 1 to 8";
  }
  SECTION("dtype of queries") {
    push.queries = heads(spec.num_q_heads, 2);
    push.queries.dtype = Dtype::kF16;
    said = "queries are f16";
  }
  SECTION("lse without queries") {
    push.lse = std::span(rows).first(8);
    said = "lse was pushed without queries";
  }
  SECTION("size of lse") {
    push.queries = heads(spec.num_q_heads, 2);
    push.lse = std::span(rows).first(7);
    said = "lse has 7 values, must be [4, 2]";
  }
  SECTION("size of scores") {
    push.scores = std::span(rows).first(5);
    said = "scores have 5 values, must be [2, 8]";
  }
  Put put = begin();
  const Status status = put.layer(layer, push);
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("layer " + std::to_string(layer)) == 0);
  CHECK(status.message().find(said) != std::string::npos);
  // Nothing of the refused layer was sent, and the put is over on both sides.
  CHECK(fake.count<msg::PushLayer>(*client) == 0);
  CHECK(fake.count<msg::AbortPut>(*client) == 1);
  CHECK(put.layer(0, good()).code() == StatusCode::kInvalidArgument);
  CHECK(put.commit().status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE_METHOD(PutFixture, "a second push of the same part of a layer is refused", "[client]") {
  Put put = begin();
  LayerPush first = good(), second = good();
  SECTION("the same") {}
  SECTION("an overlapping block of tokens") {
    first.keys = first.values = heads(spec.num_kv_heads, 5);
    second.keys = second.values = heads(spec.num_kv_heads, 4);
    second.token_begin = 4;
  }
  SECTION("an overlapping head") {
    second.keys = second.values = heads(1, kNew);
    second.head_begin = 1;
  }
  REQUIRE(put.layer(1, first).ok());
  const Status status = put.layer(1, second);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("were pushed before") != std::string::npos);
}

TEST_CASE_METHOD(PutFixture, "pieces that do not overlap make up a layer", "[client]") {
  Put put = begin();
  LayerPush piece;
  for (const std::uint32_t head : {0u, 1u}) {
    for (const std::uint32_t token : {4u, 0u}) {
      piece.keys = piece.values = heads(1, 4);
      piece.head_begin = head;
      piece.token_begin = token;
      REQUIRE(put.layer(2, piece).ok());
    }
  }
  REQUIRE(put.commit().ok());
  REQUIRE(fake.taken.size() == 4);
  CHECK(fake.taken[2].message.head_begin == 1);
  CHECK(fake.taken[2].message.head_count == 1);
  CHECK(fake.taken[2].message.token_begin == 4);
  CHECK(fake.taken[2].message.token_count == 4);
}

TEST_CASE_METHOD(PutFixture, "heads that stand apart are pushed where they are", "[client]") {
  LayerPush push = good();
  const std::size_t stride = push.keys.head_bytes() + 96;
  push.keys.head_stride_bytes = stride;
  Put put = begin();
  REQUIRE(put.layer(0, push).ok());
  const Taken& taken = fake.taken.at(0);
  CHECK(taken.message.keys_head_stride == stride);
  CHECK(taken.message.values_head_stride == push.values.head_bytes());
  REQUIRE(taken.keys.size() == stride + push.keys.head_bytes());
  CHECK(std::memcmp(taken.keys.data(), rows.data(), taken.keys.size()) == 0);
  CHECK(std::memcmp(taken.values.data(), rows.data(), taken.values.size()) == 0);
}

TEST_CASE_METHOD(PutFixture, "of the whole path's keys the new tokens are pushed", "[client]") {
  LayerPush push;
  push.keys = push.values = heads(spec.num_kv_heads, kEnd);
  push.scores = std::span(rows).first(std::size_t{spec.num_kv_heads} * kEnd);
  Put put = begin();
  REQUIRE(put.layer(0, push).ok());
  const Taken& taken = fake.taken.at(0);
  CHECK(taken.message.token_begin == 0);
  CHECK(taken.message.token_count == kNew);
  for (std::uint32_t h = 0; h < spec.num_kv_heads; ++h) {
    const std::size_t head_bytes = kNew * push.keys.row_bytes();
    CHECK(std::memcmp(taken.keys.data() + h * taken.message.keys_head_stride,
                      push.keys.row(h, kBegin), head_bytes) == 0);
    const auto* scores = reinterpret_cast<const float*>(taken.scores.data()) + h * kNew;
    CHECK(std::equal(scores, scores + kNew, push.scores.begin() + h * kEnd + kBegin));
  }
}

TEST_CASE_METHOD(PutFixture, "queries that stand apart are packed", "[client]") {
  LayerPush push = good();
  push.queries = heads(spec.num_q_heads, 2);
  push.queries.head_stride_bytes += 32;
  Put put = begin();
  REQUIRE(put.layer(0, push).ok());
  const Taken& taken = fake.taken.at(0);
  CHECK(taken.message.num_queries == 2);
  REQUIRE(taken.queries.size() == push.queries.size_bytes());
  for (std::uint32_t h = 0; h < spec.num_q_heads; ++h) {
    CHECK(std::memcmp(taken.queries.data() + h * push.queries.head_bytes(), push.queries.head(h),
                      push.queries.head_bytes()) == 0);
  }
}

TEST_CASE_METHOD(PutFixture, "a put destroyed before its commit is aborted", "[client]") {
  { Put put = begin(); }
  CHECK(fake.count<msg::AbortPut>(*client) == 1);
  {
    Put put = begin();
    REQUIRE(put.commit().ok());
    CHECK(put.layer(0, good()).code() == StatusCode::kInvalidArgument);
    CHECK(put.abort().code() == StatusCode::kInvalidArgument);
  }
  CHECK(fake.count<msg::AbortPut>(*client) == 1);
  {
    Put put = begin();
    REQUIRE(put.abort().ok());
    CHECK(put.abort().ok());
    CHECK(put.commit().status().code() == StatusCode::kInvalidArgument);
  }
  CHECK(fake.count<msg::AbortPut>(*client) == 2);
}

TEST_CASE_METHOD(PutFixture, "an abort that is refused is said once more", "[client]") {
  fake.server.answer_small = false;
  fake.abort_status = Status::rejected("too many requests", 10);
  Put put = begin();
  CHECK(put.abort().code() == StatusCode::kRejected);
  CHECK(fake.count<msg::AbortPut>(*client) == 2);
}

TEST_CASE_METHOD(PutFixture, "pieces that nobody waits for go out one after the other",
                 "[client]") {
  // Each piece is one token. There are more pieces than may be in flight.
  static_assert(kNew > Put::kLayersAheadMax);
  Put put = begin();
  const auto piece = [this](std::uint32_t token) {
    LayerPush push;
    push.keys = push.values = heads(spec.num_kv_heads, 1);
    push.token_begin = token;
    return push;
  };
  const auto taken = [this] {
    std::size_t count = 0;
    fake.server.on_loop([&] { count = fake.taken.size(); });
    return count;
  };
  for (std::uint32_t t = 0; t < kNew; ++t) {
    REQUIRE(put.start_layer(0, piece(t)).ok());
    CHECK(taken() + Put::kLayersAheadMax >= t + 1);
  }
  REQUIRE(put.wait_layers(1).ok());
  CHECK(taken() + 1 >= kNew);
  REQUIRE(put.wait_layers().ok());
  CHECK(taken() == kNew);
  CHECK(put.start_layer(0, piece(3)).message().find("pushed before") != std::string::npos);
}

TEST_CASE_METHOD(PutFixture, "pieces under way are called off when their put ends", "[client]") {
  fake.silent = true;
  {
    Put put = begin();
    REQUIRE(put.start_layer(0, good()).ok());
    REQUIRE(put.start_layer(1, good()).ok());
    SECTION("by a piece that can't be pushed") {
      LayerPush wrong = good();
      wrong.keys.head_dim += 1;
      CHECK(put.start_layer(2, wrong).code() == StatusCode::kInvalidArgument);
      CHECK(put.wait_layers().message().find("head_dim") != std::string::npos);
    }
    SECTION("by the loss of its connection") {
      fake.server.on_loop([&] { fake.server.drop(); });
      CHECK(put.wait_layers().code() == StatusCode::kUnavailable);
    }
    SECTION("by its abort") { CHECK(put.abort().ok()); }
    SECTION("by its end") {}
  }
  // Nothing waits for the missing answers, and the client still works.
  fake.silent = false;
  const auto again = fake.server.connect().value();
  const std::vector<TokenId> tokens(kEnd, 1);
  Put put = again->begin_put(Model{spec, {}, {}}, tokens).value();
  CHECK(put.layer(0, good()).ok());
}

TEST_CASE_METHOD(PutFixture, "what is found of a piece ahead ends its put", "[client]") {
  fake.push_status = Status::invalid("layer 0 keys: NaN at head 1, token 5");
  Put put = begin();
  REQUIRE(put.start_layer(0, good()).ok());
  REQUIRE(put.start_layer(1, good()).ok());
  CHECK(put.commit().status().message().find("NaN at head 1") != std::string::npos);
  CHECK(put.layer(2, good()).message().find("NaN at head 1") != std::string::npos);
  CHECK(put.abort().ok());
  CHECK(fake.count<msg::CommitPut>(*client) == 0);
  CHECK(fake.count<msg::AbortPut>(*client) == 1);
}

TEST_CASE_METHOD(PutFixture, "the service's refusal of a layer ends the put", "[client]") {
  fake.push_status = Status::invalid("layer 0 keys: NaN at head 1, token 5");
  Put put = begin();
  const Status status = put.layer(0, good());
  CHECK(status.message().find("NaN at head 1, token 5") != std::string::npos);
  CHECK(put.layer(1, good()).message().find("NaN at head 1") != std::string::npos);
  CHECK(put.abort().ok());
  CHECK(fake.count<msg::AbortPut>(*client) == 1);
}

TEST_CASE_METHOD(PutFixture, "a commit refused for missing layers can be made good", "[client]") {
  fake.commit_status = Status::invalid("layers 1, 2 are missing");
  Put put = begin();
  CHECK(put.commit().status() == Status::invalid("layers 1, 2 are missing"));
  CHECK(put.layer(1, good()).ok());
  CHECK(put.commit().ok());
}

TEST_CASE_METHOD(PutFixture, "of a segment already stored no bytes are sent", "[client]") {
  fake.already_stored = true;
  Put put = begin();
  CHECK(put.layer(0, good()).ok());
  CHECK(put.commit().ok());
  CHECK(fake.count<msg::PushLayer>(*client) == 0);
  CHECK(fake.count<msg::CommitPut>(*client) == 1);
}

TEST_CASE_METHOD(PutFixture, "a path must have a token and not more than the limit", "[client]") {
  const Model model{spec, {}, {}};
  CHECK(client->begin_put(model, {}).status().code() == StatusCode::kInvalidArgument);
  CHECK(client->lookup(model, {}).status().code() == StatusCode::kInvalidArgument);
  const std::vector<TokenId> other(kEnd + 1, 1);  // The fake begins puts of kEnd tokens.
  CHECK(client->begin_put(model, other).status().code() == StatusCode::kInternal);
}

}  // namespace
