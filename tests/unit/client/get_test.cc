// A get as it arrives: whole, in part, damaged, from a server that lies, and canceled on the way.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>

#include "precis/limits.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

// Checks what a reader sees of one head.
void check_head(const HeadEntries& head, const std::vector<Entry>& expected,
                const ModelSpec& model) {
  REQUIRE(head.positions.size() == expected.size());
  REQUIRE(head.seats.size() == expected.size());
  REQUIRE(head.scores.size() == expected.size());
  REQUIRE(head.keys.num_tokens == expected.size());
  REQUIRE(head.values.num_tokens == expected.size());
  REQUIRE(head.keys.head_dim == model.head_dim);
  REQUIRE(head.keys.dtype == model.dtype);
  bool equal = true;
  for (std::uint32_t i = 0; i < expected.size(); ++i) {
    const Entry& e = expected[i];
    equal = equal && head.positions[i] == e.position && head.seats[i] == e.seat &&
            head.scores[i] == e.score &&
            std::memcmp(head.keys.row(0, i), e.key.data(), e.key.size()) == 0 &&
            std::memcmp(head.values.row(0, i), e.value.data(), e.value.size()) == 0;
  }
  CHECK(equal);
}

void check_prefix(const Prefix& prefix, const Serving& serving, std::uint32_t matched_end) {
  REQUIRE(prefix.wait().ok());
  std::uint64_t total = 0;
  for (std::uint32_t l = 0; l < serving.model.num_layers; ++l) {
    REQUIRE(prefix.wait_layer(l).ok());
    for (std::uint32_t h = 0; h < serving.model.num_kv_heads; ++h) {
      std::vector<Entry> expected;
      for (std::size_t link = 0; link < serving.segments.size(); ++link) {
        const StoredSegment& segment = serving.segments[link];
        const EntryForm& form = segment.form;
        for (const Entry& e : segment.entries[l][h]) {
          if (e.seat > serving.entries[link] || e.position >= matched_end) continue;
          expected.push_back({e.position, e.seat, e.score, row_as_read(form.keys(), e.key),
                              row_as_read(form.values(), e.value)});
        }
      }
      CAPTURE(l, h);
      check_head(prefix.head(l, h), expected, serving.model);
      CHECK(prefix.plan().at(l, h) == expected.size());
      total += expected.size();
    }
  }
  CHECK(prefix.plan().total() == total);
  CHECK(prefix.matched_tokens() == matched_end);
  CHECK(prefix.bytes() > 0);
}

TEST_CASE("a get of all gives every stored entry", "[client]") {
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  // A few entries, whole checksum blocks or not, and all entries.
  const std::uint64_t entries = GENERATE(1u, 6u, 384u, 1000u, 2400u);
  CAPTURE(entries);
  const Serving serving = one_segment(small_model(dtype), entries, entries);
  FakeServer server(serving);
  const auto client = server.connect().value();
  check_prefix(client->get(match_of(serving.model, serving.segments)).value(), serving, 400);
}

TEST_CASE("a get at a smaller budget gives the cut", "[client]") {
  const ModelSpec model = small_model();
  const std::uint32_t per_head = GENERATE(1u, 63u, 64u, 65u, 200u);
  CAPTURE(per_head);
  const Serving serving = one_segment(model, 1200, std::uint64_t{per_head} * 6);
  FakeServer server(serving);
  const auto client = server.connect().value();
  check_prefix(client->get(match_of(model, serving.segments), Budget::entries(per_head)).value(),
               serving, 400);
}

TEST_CASE("a prefix of several segments stands segment by segment", "[client]") {
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  check_prefix(client->get(match_of(serving.model, serving.segments)).value(), serving, 500);
}

TEST_CASE("of a segment matched in part the entries past the match are left out", "[client]") {
  const std::uint32_t matched_end = GENERATE(311u, 384u, 499u);
  CAPTURE(matched_end);
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  LookupMatch match = match_of(serving.model, serving.segments);
  match.links.back().matched_end = match.matched_tokens = matched_end;
  check_prefix(client->get(match).value(), serving, matched_end);
}

TEST_CASE("gets one after the other share their memory, gets at once do not", "[client]") {
  const Serving serving = one_segment(small_model(), 1000, 1000);
  FakeServer server(serving);
  const auto client = server.connect().value();
  const LookupMatch match = match_of(serving.model, serving.segments);
  // Each get lays out the same layers in the same way.
  const auto place = [](const Prefix& prefix) { return prefix.head(0, 0).keys.row(0, 0); };
  const std::byte *of_first, *of_second;
  {
    const Prefix first = client->get(match).value();
    const Prefix second = client->get(match).value();
    check_prefix(first, serving, 400);
    check_prefix(second, serving, 400);
    of_first = place(first);
    of_second = place(second);
    CHECK(of_first != of_second);
  }
  const Prefix third = client->get(match).value();
  check_prefix(third, serving, 400);
  CHECK((place(third) == of_first || place(third) == of_second));
}

TEST_CASE("a byte that changed on the way is corruption of its layer alone", "[client]") {
  Serving serving = one_segment(small_model(), 1200, 166 * 6);
  std::mt19937 random(GENERATE(range(1u, 9u)));
  serving.damage = [&](ServedBytes& served) {
    if (served.message.layer != 1) return;
    // A byte of an entry: padding is not checked.
    const auto& segment = serving.segments[0].entries[1][0];
    const Entry& entry = segment[random() % 100];
    const auto found =
        std::search(served.bytes.begin(), served.bytes.end(), entry.key.begin(), entry.key.end());
    PRECIS_CHECK(found != served.bytes.end());
    found[static_cast<std::ptrdiff_t>(random() % entry.key.size())] ^= std::byte{1};
  };
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix =
      client->get(match_of(serving.model, serving.segments), Budget::entries(166)).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
  CHECK(prefix.wait_layer(0).ok());
  const Status status = prefix.wait_layer(1);
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK(status.message().find("layer 1, head 0") != std::string::npos);
  CHECK(prefix.wait_layer(2).ok());
}

TEST_CASE("what a server says of a layer is believed only within what was asked for", "[client]") {
  Serving serving = three_segments(small_model());
  std::string said;
  const auto lie = [&](std::function<void(msg::LayerServed&)> how, std::string expected) {
    said = std::move(expected);
    serving.damage = [how](ServedBytes& served) {
      if (served.message.layer == 1) how(served.message);
    };
  };
  using Served = msg::LayerServed;
  const auto resize = [](Served& s, std::size_t size) {
    s.counts.resize(size);
    s.tail_checksums.resize(size);
  };
  SECTION("a layer the model does not have") {
    lie([](Served& s) { s.layer = 3; }, "layer 3 of a model of 3");
  }
  SECTION("a layer twice") {
    lie([](Served& s) { s.layer = 0; }, "second time");
  }
  SECTION("an offset past the buffer") {
    lie([](Served& s) { s.offset = std::uint64_t{1} << 40; }, "inside the buffer");
  }
  SECTION("an offset that wraps around") {
    lie([](Served& s) { s.offset = UINT64_MAX - 63; }, "inside the buffer");
  }
  SECTION("an offset that is not aligned") {
    lie([](Served& s) { s.offset += 4; }, "multiple of 64");
  }
  SECTION("another layer's place") {
    lie([](Served& s) { s.offset = 0; }, "where another layer lies");
  }
  SECTION("one entry more than is left") {
    lie([](Served& s) { s.counts[2] += 8; }, "are left");
  }
  SECTION("the largest counts there are") {
    lie([](Served& s) { std::fill(s.counts.begin(), s.counts.end(), limits::kPathTokensMax); },
        "which has only 300 tokens");
  }
  SECTION("too few heads") {
    lie([&](Served& s) { resize(s, 5); }, "must be 6 each");
  }
  SECTION("too many heads") {
    lie([&](Served& s) { resize(s, 7); }, "must be 6 each");
  }
  SECTION("no counts") {
    lie([&](Served& s) { resize(s, 0); }, "must be 6 each");
  }
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix = client->get(match_of(serving.model, serving.segments)).value();
  const Status status = prefix.wait();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK(status.message().find(said) != std::string::npos);
  CHECK(prefix.wait_layer(1).code() == StatusCode::kCorruption);
  CHECK(prefix.wait_layer(0).ok());
  CHECK(prefix.wait_layer(3).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a layer served twice to who waits for it ends the get", "[client]") {
  ModelSpec model = small_model(Dtype::kF32);
  model.head_dim = 256;  // a layer is more than the loop checks inline
  Serving serving = one_segment(model, 2400, 2400);
  serving.damage = [](ServedBytes& served) {
    if (served.message.layer == 1) served.message.layer = 0;
  };
  FakeServer server(serving);
  const auto client = server.connect().value();
  for (int round = 0; round < 20; ++round) {
    const Prefix prefix = client->get(match_of(serving.model, serving.segments)).value();
    (void)prefix.wait_layer(0);
    const Status status = prefix.wait();
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::kCorruption);
    CHECK_THAT(status.message(), Catch::Contains("second time"));
  }
}

TEST_CASE("a tail checksum that does not hold is corruption", "[client]") {
  Serving serving = one_segment(small_model(), 1000, 1000);
  serving.damage = [](ServedBytes& served) {
    for (auto& checksum : served.message.tail_checksums) checksum[0] ^= 1;
  };
  FakeServer server(serving);
  const auto client = server.connect().value();
  CHECK(client->get(match_of(serving.model, serving.segments)).value().wait().code() ==
        StatusCode::kCorruption);
}

TEST_CASE("entries that are not of the cut or of the segment are corruption", "[client]") {
  Serving serving = one_segment(small_model(), 1000, std::uint64_t{1} << 40);
  std::vector<Entry>& head = serving.segments[0].entries[1][1];
  std::string said;
  SECTION("a seat past the cut") {
    head.back().seat = 1001;
    said = "has seat 1001";
  }
  SECTION("seats that do not ascend") {
    std::swap(head[3], head[4]);
    said = "entry 4 has seat";
  }
  SECTION("seat 0") {
    head[0].seat = 0;
    said = "entry 0 has seat 0";
  }
  SECTION("a position past the segment") {
    head[5].position = 400;
    said = "has position 400";
  }
  reseal(serving.model, serving.segments[0]);  // so that the checksums hold
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix = client->get(match_of(serving.model, serving.segments)).value();
  const Status status = prefix.wait();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK(status.message().find("layer 1, head 1") != std::string::npos);
  CHECK(status.message().find(said) != std::string::npos);
}

TEST_CASE("a get that ends without all it owes is corruption", "[client]") {
  Serving serving = one_segment(small_model(), 1000, 1000);
  LookupMatch match = match_of(serving.model, serving.segments);
  SECTION("no layers") { serving.layers_served = 0; }
  SECTION("a layer short") { serving.layers_served = 2; }
  SECTION("an entry short") { serving.entries = {999}; }
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix = client->get(match).value();
  const Status status = prefix.wait();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kCorruption);
}

TEST_CASE("the service's failure of a get fails the layers that had not come", "[client]") {
  Serving serving = one_segment(small_model(), 1000, 1000);
  serving.layers_served = 1;
  serving.verdict = Status::corruption("segment abc layer 1: stored bytes failed their check");
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix = client->get(match_of(serving.model, serving.segments)).value();
  CHECK(prefix.wait() == serving.verdict);
  CHECK(prefix.wait_layer(0).ok());
  CHECK(prefix.wait_layer(1) == serving.verdict);
}

TEST_CASE("a flood of layers is not queued", "[client]") {
  const ModelSpec model = small_model();
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    for (int i = 0; i < 10'000; ++i) self.send(msg::LayerServed{request.id, 0, 0, {}, {}});
    self.reply(request.id, msg::GetDone{});
  });
  std::mt19937 random(kServingSeed);
  const auto client = server.connect().value();
  const Prefix prefix =
      client->get(match_of(model, {random_segment(random, model, 0, 10, 20)})).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
}

// Holds a get unanswered, as a slow server would.
struct HeldGet {
  std::promise<void> asked;
  msg::Request request;
  std::uint32_t cancels = 0;
  void operator()(FakeServer& self, msg::Request r) {
    if (const auto* cancel = std::get_if<msg::Cancel>(&r.body)) {
      cancels += cancel->request == request.id;
      return self.reply(r.id, msg::Done{});
    }
    if (std::holds_alternative<msg::ListModels>(r.body)) return self.reply(r.id, msg::Models{});
    if (!std::holds_alternative<msg::Get>(r.body)) return;
    request = std::move(r);
    asked.set_value();
  }
  const RemoteRegion& destination() const { return std::get<msg::Get>(request.body).destination; }
};

// Pushes into the get's memory, as a server that has not yet learnt of its end would.
Status write_late(FakeServer& server, const HeldGet& held) {
  std::promise<Status> pushed;
  server.on_loop([&] {
    server.push(held.destination(), 0, std::vector<std::byte>(4096, std::byte{1}),
                [&](const Status& status) { pushed.set_value(status); });
  });
  return pushed.get_future().get();
}

TEST_CASE("a prefix destroyed on its way is canceled, and its memory lives until the answer",
          "[client]") {
  HeldGet held;
  FakeServer server([&](FakeServer& self, msg::Request r) { held(self, std::move(r)); });
  server.answer_small = false;
  const auto client = server.connect().value();
  std::mt19937 random(kServingSeed);
  const ModelSpec model = small_model();
  const LookupMatch match = match_of(model, {random_segment(random, model, 0, 400, 1000)});
  { const Prefix prefix = client->get(match).value(); }
  held.asked.get_future().wait();
  REQUIRE(client->models().ok());  // Everything sent before has arrived.
  std::uint32_t cancels = 0;
  server.on_loop([&] { cancels = held.cancels; });
  CHECK(cancels == 1);
  CHECK(write_late(server, held).ok());
  server.on_loop([&] { server.refuse(held.request.id, Status::canceled("as asked")); });
  REQUIRE(client->models().ok());
  CHECK_FALSE(write_late(server, held).ok());  // Answered: the memory is closed.
}

TEST_CASE("a get that times out is told so, and its memory lives until the answer", "[client]") {
  HeldGet held;
  FakeServer server([&](FakeServer& self, msg::Request r) { held(self, std::move(r)); });
  server.answer_small = false;
  ConnectOptions options;
  options.timeout_ms = 30;
  const auto client = server.connect(options).value();
  std::mt19937 random(kServingSeed);
  const ModelSpec model = small_model();
  {
    const Prefix prefix =
        client->get(match_of(model, {random_segment(random, model, 0, 400, 1000)})).value();
    CHECK(prefix.wait().code() == StatusCode::kTimedOut);
  }
  CHECK(write_late(server, held).ok());
  server.on_loop([&] { server.refuse(held.request.id, Status::canceled("as asked")); });
}

TEST_CASE("the last handle gone, a get on its way is called off before its memory goes",
          "[client]") {
  FakeServer server([](FakeServer&, const msg::Request&) {});  // Only Cancel is answered.
  std::mt19937 random(kServingSeed);
  const ModelSpec model = small_model();
  {
    const Prefix prefix = server.connect()
                              .value()
                              ->get(match_of(model, {random_segment(random, model, 0, 400, 1000)}))
                              .value();
  }
  int cancels = 0;
  server.on_loop([&] {
    for (const msg::Request& request : server.seen()) {
      cancels += std::holds_alternative<msg::Cancel>(request.body);
    }
  });
  CHECK(cancels >= 1);
}

}  // namespace
