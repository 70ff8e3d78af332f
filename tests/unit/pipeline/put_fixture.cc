#include "tests/unit/pipeline/put_fixture.h"

#include <algorithm>
#include <future>
#include <random>

namespace precis::testing {
namespace {

constexpr std::size_t kArenaBytes = 4u << 20;
constexpr int kAnyPulls = 1 << 20;
constexpr int kQuietTurns = 8;  // more than between two compressions or moves

}  // namespace

std::shared_ptr<StagedValue> SlowStore::stage(SharedBytes value) {
  const std::lock_guard lock(mutex_);
  if (!holds_) return nullptr;
  const Bytes bytes = value.bytes;
  staged_.push_back({std::move(value), {bytes.begin(), bytes.end()}});
  return nullptr;
}

Status SlowStore::write(const StoreBatch& batch, Durability durability) {
  if (on_write) on_write(batch);
  return ForwardingStore::write(batch, durability);
}

void SlowStore::hold() {
  const std::lock_guard lock(mutex_);
  holds_ = true;
}

void SlowStore::write_out() {
  std::vector<Staged> written;
  const std::lock_guard lock(mutex_);
  holds_ = false;
  written.swap(staged_);
}

std::size_t SlowStore::unchanged() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(staged_, [](const Staged& staged) {
    return std::ranges::equal(staged.value.bytes, staged.was);
  }));
}

void NearWriter::pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                      const Registration&, Completion done) {
  ++pulls_;
  copy_from(from, offset, into);
  pulled_.push_back(std::move(done));
  let(0);
}

// Rows begin on cache lines, as in memory that a client allocated.
class NearWriter::PayloadMemory final : public PeerMemory {
 public:
  PayloadMemory(const RemoteRegion& region, std::shared_ptr<int> reading)
      : bytes_(region.size_bytes + kSectionAlign), reading_(std::move(reading)) {
    void* begin = bytes_.data();
    std::size_t room = bytes_.size();
    rows_ = {static_cast<std::byte*>(std::align(kSectionAlign, region.size_bytes, begin, room)),
             region.size_bytes};
    copy_from(region, 0, rows_);
    ++*reading_;
  }
  ~PayloadMemory() override { --*reading_; }
  Bytes bytes() const override { return rows_; }

 private:
  std::vector<std::byte> bytes_;
  MutableBytes rows_;
  const std::shared_ptr<int> reading_;
};

std::shared_ptr<const PeerMemory> NearWriter::read_in_place(const RemoteRegion& region) {
  if (!near) return nullptr;
  return std::make_shared<PayloadMemory>(region, reading_);
}

void NearWriter::let(int pulls) {
  lets_ += pulls;
  for (; lets_ > 0 && !pulled_.empty(); --lets_) {
    loop_.post([done = std::move(pulled_.front())] { done(Status()); });
    pulled_.pop_front();
  }
}

PushedLayer::PushedLayer(const ModelSpec& of, std::uint32_t index)
    : NearLayer(of, index, kTokens),
      scores(kHeads * kTokens),
      queries(std::size_t{of.num_q_heads} * kQueries * of.head_dim) {
  std::mt19937 random(20261123 + index);
  for (auto* numbers : {&keys, &values, &scores, &queries}) {
    for (float& number : *numbers) number = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
  }
}

msg::PushLayer PushedLayer::heads(const std::string& recipe, std::uint32_t begin,
                                  std::uint32_t count) const {
  msg::PushLayer push = piece(begin, count, 0, kTokens);
  if (recipe == kCompeting) {
    push.scores = region_of(scores);
    push.scores->address += begin * kTokens * sizeof(float);
    push.scores->size_bytes -= begin * kTokens * sizeof(float);
  }
  if (recipe == kObserving) observe(push);
  return push;
}

void PushedLayer::observe(msg::PushLayer& push) const {
  push.queries = region_of(queries);
  push.num_queries = kQueries;
}

// ---- the fixture --------------------------------------------------------------------------------

PutFixture::PutFixture(std::chrono::milliseconds wait, std::unique_ptr<kernels::Backend> with)
    : catalog(open()),
      arena(std::move(Arena::create(kArenaBytes)).value()),
      hot_tier(kArenaBytes, make_s3_fifo_policy),
      memory(*arena, hot_tier, loop, wait),
      room(loop, kArenaBytes, wait, [](const std::string&, std::optional<std::size_t>) {}),
      disk_quota(
          loop, [](const std::string&) { return 0; }, {}, wait),
      compute("compute", with->compressors()),
      backend(std::move(with)),
      projections(
          {loop, compute, storage, storage, reads, memory, registration, *catalog, hot_tier, log}),
      path({loop, compute, storage, reads, cold, memory, registration, kArenaBytes, *backend,
            *catalog, paths, hot_tier, projections, room, disk_quota, prefill, metrics, f.clock,
            BudgetDefaults{}}) {
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) layers.emplace_back(f.model, layer);
}

// After a failed check, operations may still wait for members that are destroyed next. The
// destructor ends these operations first.
PutFixture::~PutFixture() {
  store.write_out();
  for (const PutPtr& put : puts) static_cast<void>(path.abort(*put));
  for (NearWriter* writer : {&one, &other}) writer->let(kAnyPulls);
  memory.stop();
  settle();
}

std::unique_ptr<Catalog> PutFixture::open() {
  f.model.num_layers = kLayers;
  f.model.num_kv_heads = kHeads;
  f.model.head_dim = 64;
  f.model.dtype = Dtype::kF32;
  f.fingerprint = model_fingerprint(f.model);
  auto opened = Catalog::open(store, f.clock);
  REQUIRE(opened.ok());
  REQUIRE((*opened)->register_model(f.tenant, f.model).ok());
  return std::move(opened).value();
}

void PutFixture::turn() {
  compute.post([this] {
    storage.post(Owner(), [this] {
      loop.post([this] { loop.stop(); });
      return false;
    });
  });
  loop.run();
}

void PutFixture::wait_for_compute() {
  for (int turns = 0; turns < kQuietTurns; ++turns) {
    std::promise<void> turned;
    compute.post([&] { loop.post([&] { turned.set_value(); }); });
    turned.get_future().wait();
  }
}

void PutFixture::turn_loop() {
  constexpr int kTurns = 8;
  for (int i = 0; i < kTurns; ++i) {
    loop.post([this] { loop.stop(); });
    loop.run();
  }
}

void PutFixture::settle() {
  for (int quiet = 0; quiet < kQuietTurns; quiet = path.idle() ? quiet + 1 : 0) turn();
}

msg::BeginPut PutFixture::request(const std::string& recipe, Budget budget, TokenId first) const {
  msg::BeginPut request;
  request.model = f.fingerprint;
  request.tokens = tokens(kTokens, first);
  request.recipe = recipe;
  request.budget = budget;
  return request;
}

PutPtr PutFixture::begin(const msg::BeginPut& request, NearWriter& from) {
  std::optional<Result<PutPtr>>& begun = begins.emplace_back();
  spawn(began(request, from, begun));
  settle();
  REQUIRE(begun);
  INFO(begun->status().to_string());
  REQUIRE(begun->ok());
  puts.push_back(**begun);
  return puts.back();
}

Task<void> PutFixture::began(msg::BeginPut request, NearWriter& from,
                             std::optional<Result<PutPtr>>& answer) {
  answer.emplace(co_await path.begin(tenant, std::move(request), from));
}

std::optional<Status>& PutFixture::push(const PutPtr& put, const msg::PushLayer& piece,
                                        NearWriter& from) {
  std::optional<Status>& answer = pushes.emplace_back();
  spawn(pushed(put, piece, from, answer));
  return answer;
}

Task<void> PutFixture::pushed(PutPtr put, msg::PushLayer piece, NearWriter& from,
                              std::optional<Status>& answer) {
  answer.emplace(co_await path.push(put, piece, from));
}

std::optional<Outcome>& PutFixture::commit(const PutPtr& put, const NearWriter& from) {
  std::optional<Outcome>& answer = commits.emplace_back();
  spawn(committed(put, &from, answer));
  return answer;
}

Task<void> PutFixture::committed(PutPtr put, JointPut::Writer writer,
                                 std::optional<Outcome>& answer) {
  answer.emplace(co_await path.commit(put, writer, Durability::kWal));
}

std::optional<Outcome>& PutFixture::push_and_commit(const PutPtr& put, const msg::PushLayer& piece,
                                                    NearWriter& from) {
  std::optional<Status>& answer = pushes.emplace_back();
  std::optional<Outcome>& done = commits.emplace_back();
  spawn(pushed_and_committed(put, piece, from, answer, done));
  return done;
}

Task<void> PutFixture::pushed_and_committed(PutPtr put, msg::PushLayer piece, NearWriter& from,
                                            std::optional<Status>& answer,
                                            std::optional<Outcome>& done) {
  co_await pushed(put, piece, from, answer);
  co_await committed(put, &from, done);
}

std::optional<Pieces>& PutFixture::want(std::size_t size_bytes) {
  std::optional<Pieces>& answer = wants.emplace_back();
  spawn(had(size_bytes, answer));
  return answer;
}

Task<void> PutFixture::had(std::size_t size_bytes, std::optional<Pieces>& answer) {
  const std::vector<PayloadMemory::Want> wanted(1, PayloadMemory::Want{size_bytes});
  answer.emplace(co_await memory.acquire(wanted, Owner{"", 1, &wants}));
}

void PutFixture::check_taken_in(std::size_t count) {
  settle();
  REQUIRE(pushes.size() == count);
  for (const auto& answer : pushes) {
    REQUIRE(answer);
    INFO(answer->to_string());
    REQUIRE(answer->ok());
  }
}

void PutFixture::leave(std::size_t size_bytes) {
  others_have.push_back(arena->allocate(kArenaBytes - Arena::taken_bytes(size_bytes)).value());
}

void PutFixture::leave_nothing() {
  others_have.push_back(arena->allocate(kArenaBytes - arena->used_bytes()).value());
}

void PutFixture::check_nothing_held(const SegmentId& stored) {
  hot_tier.erase(stored);
  others_have.clear();
  CHECK(arena->used_bytes() == 0);
  CHECK(memory.waiting() == 0);
}

std::vector<std::vector<std::byte>> PutFixture::records(const SegmentId& stored) {
  const Catalog::Row row = catalog->segment(f.tenant, stored).value();
  std::vector<std::vector<std::byte>> records;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    records.emplace_back(row->layer_bytes[layer]);
    REQUIRE(catalog->read_layer(*row, layer, records.back()).ok());
    const HotTier::Lease hot = hot_tier.find(stored, layer, row);
    const bool same = !hot || std::ranges::equal(hot->bytes(), records.back());
    REQUIRE(same);
  }
  return records;
}

// ---- a put alone --------------------------------------------------------------------------------

PutAlone::PutAlone(const msg::BeginPut& request, const Order& order) {
  PutFixture alone;
  const PutPtr put = alone.begin(request, alone.one);
  staged_bytes_max = Arena::taken_bytes(put->staged_bytes_max());
  layer_bytes_max = Arena::taken_bytes(alone.f.model.token_bytes() / kLayers * kTokens) +
                    Arena::taken_bytes(put->records_bytes_max(0));
  for (const std::uint32_t layer : order) {
    alone.push(put, alone.layers[layer].heads(request.recipe, 0, kHeads), alone.one);
    alone.settle();
    held.push_back(alone.arena->used_bytes());
  }
  alone.check_taken_in(kLayers);
  const auto& done = alone.commit(put, alone.one);
  alone.settle();
  REQUIRE((done && done->ok()));
  stored = **done;
  records = alone.records(stored.id);
}

void PutAlone::check_is(PutFixture& fixture, const std::optional<Outcome>& done) const {
  REQUIRE(done);
  INFO(done->status().to_string());
  REQUIRE(done->ok());
  CHECK((*done)->id == stored.id);
  CHECK((*done)->plan == stored.plan);
  const bool same = fixture.records(stored.id) == records;
  CHECK(same);
  fixture.check_nothing_held(stored.id);
}

}  // namespace precis::testing
