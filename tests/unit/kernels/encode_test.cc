// Stages compact and encode: the content of the records, byte for byte.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstring>

#include "kernels/common/thread_pool.h"
#include "kernels/encode/encode.h"
#include "precis/row_code.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

TEST_CASE("records hold each head's entries in retention order", "[kernels][encode]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const CpuStages cpu(3);
  for (int round = 0; round < 40; ++round) {
    LayerShape shape;
    shape.num_layers = pick(rng, 1, 3);
    shape.layer = pick(rng, 0, shape.num_layers - 1);
    shape.num_kv_heads = pick(rng, 1, 4);
    shape.num_tokens = pick(rng, 1, 150);
    shape.head_dim = pick(rng, 1, 20);
    shape.begin = pick(rng, 0, 100);
    shape.stride_gap = pick(rng, 0, 3);
    shape.external = true;
    shape.dtype = pick_dtype(rng);
    CAPTURE(round, shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe;
    recipe.scorer = Scorer::kExternal;
    const std::uint32_t all = shape.num_layers * shape.num_kv_heads * shape.num_tokens;
    const Compressed c = compress(cpu, recipe, layer.input, pick(rng, 1, all));
    const auto records = open_all(c.records);
    REQUIRE(records.size() == shape.num_kv_heads);
    const std::size_t row_bytes = layer.input.keys.row_bytes();
    for (std::uint32_t h = 0; h < shape.num_kv_heads; ++h) {
      const RecordView& r = records[h];
      CHECK((r.layer == shape.layer && r.head == h && r.head_dim == shape.head_dim &&
             r.dtype == shape.dtype));
      REQUIRE(r.count == c.counts[h]);
      for (std::uint32_t k = 0; k < r.count; ++k) {
        const std::uint32_t token = c.orders.order[h][k];
        REQUIRE(r.positions[k] == shape.begin + token);
        REQUIRE(r.seats[k] == c.seats[h][k]);
        const float& score = c.scores.scores[h * shape.num_tokens + token];
        REQUIRE(std::memcmp(&r.scores[k], &score, 4) == 0);
        REQUIRE(std::memcmp(&r.keys[k * row_bytes], layer.input.keys.row(h, token), row_bytes) ==
                0);
        REQUIRE(std::memcmp(&r.values[k * row_bytes], layer.input.values.row(h, token),
                            row_bytes) == 0);
      }
    }
  }
}

TEST_CASE("records are the same whatever the threads and whatever the buffer held before",
          "[kernels][encode]") {
  Rng rng(9);
  LayerShape shape;
  shape.num_tokens = 2100;
  shape.head_dim = 24;
  shape.group = 3;
  shape.num_kv_heads = 3;
  shape.pushed = 16;
  shape.dtype = Dtype::kBf16;
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Scorer scorer :
       {Scorer::kWindowAttention, Scorer::kKnorm, Scorer::kKeydiff, Scorer::kLagkv}) {
    Recipe recipe;
    recipe.scorer = scorer;
    recipe.window = 16;
    recipe.recent = scorer == Scorer::kLagkv ? 0 : 16;
    recipe.protect_tail = scorer == Scorer::kLagkv;
    if (scorer == Scorer::kWindowAttention) recipe.heads = HeadAllocator::kAda;
    const CpuStages one(1);
    const Compressed expected = compress(one, recipe, layer.input, 3 * 501);
    for (const unsigned threads : {2u, 3u, 8u}) {
      const CpuStages cpu(threads);
      const Compressed c = compress(cpu, recipe, layer.input, 3 * 501);
      AlignedBytes other(c.records.bytes().size(), std::byte{0x11});
      REQUIRE(cpu.encode(layer.input, c.scores, c.orders, c.counts, c.seats, SegmentId{{1, 2, 3}},
                         other.mutable_bytes())
                  .ok());
      CHECK(bytes_text(c.records.bytes()) == bytes_text(expected.records.bytes()));
      CHECK(bytes_text(other.bytes()) == bytes_text(expected.records.bytes()));
    }
  }
}

// Rows of whole, aligned cache lines take a path of their own, which differs between instruction
// sets.
TEST_CASE("records are the same on every instruction set and at every address",
          "[kernels][encode]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  ThreadPool pool(2);
  for (const std::uint32_t head_dim : {31u, 32u, 64u, 96u, 128u, 256u}) {
    LayerShape shape;
    shape.num_kv_heads = 2;
    shape.num_tokens = 700;
    shape.head_dim = head_dim;
    shape.external = true;
    shape.dtype = pick_dtype(rng);
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe;
    recipe.scorer = Scorer::kExternal;
    const CpuStages cpu(1);
    const Compressed c = compress(cpu, recipe, layer.input, pick(rng, 2 * 64, 2 * 700));
    CHECK(open_all(c.records).size() == 2);  // xxHash itself confirms the checksums
    const std::size_t size = c.records.bytes().size();
    for (const bool sealed : {true, false}) {
      const auto seats = sealed ? c.seats : std::vector<std::vector<std::uint32_t>>();
      const auto encoded = [&](Isa isa, std::size_t offset) {
        AlignedBytes out(size + 64);
        const MutableBytes bytes = out.mutable_bytes().subspan(offset, size);
        REQUIRE(encode_cpu({pool, isa}, layer.input, c.scores, c.orders, c.counts, seats,
                           SegmentId{{1, 2, 3}}, bytes, Encoding::kRaw)
                    .ok());
        return bytes_text(bytes);
      };
      const std::string expected = encoded(Isa::kBaseline, 4);
      if (sealed) CHECK(expected == bytes_text(c.records.bytes()));
      for (const Isa isa : isas()) {
        CAPTURE(isa_name(isa), sealed);
        CHECK(encoded(isa, 0) == expected);
        CHECK(encoded(isa, 16) == expected);
      }
    }
  }
}

TEST_CASE("encode finds what is not finite in rows that nobody has checked, kept or not",
          "[kernels][encode]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  ThreadPool pool(2);
  for (const Dtype dtype : kDtypes) {
    for (const std::uint32_t head_dim : {31u, 64u, 128u}) {
      LayerShape shape;
      shape.layer = 3;
      shape.num_layers = 5;
      shape.num_kv_heads = 2;
      shape.num_tokens = 700;
      shape.head_dim = head_dim;
      shape.external = true;
      shape.dtype = dtype;
      CAPTURE(shape.text());
      OwnedLayer layer = make_layer(shape, rng);
      Recipe recipe;
      recipe.scorer = Scorer::kExternal;
      const std::uint64_t entries = pick(rng, 0, 1) == 0 ? 2 * 700 : pick(rng, 2 * 64, 2 * 700);
      const Compressed c = compress(CpuStages(1), recipe, layer.input, entries);
      AlignedBytes out(c.records.bytes().size());
      for (const bool sealed : {true, false}) {
        const auto seats = sealed ? c.seats : std::vector<std::vector<std::uint32_t>>();
        const auto encode = [&](Isa isa, Rows rows) {
          return encode_cpu({pool, isa}, layer.input, c.scores, c.orders, c.counts, seats,
                            SegmentId{{1, 2, 3}}, out.mutable_bytes(), Encoding::kRaw, rows);
        };
        for (const Isa isa : isas()) {
          CAPTURE(isa_name(isa), sealed);
          REQUIRE(encode(isa, Rows::kChecked).ok());
          const std::string expected = bytes_text(out.bytes());
          REQUIRE(encode(isa, Rows::kUnchecked).ok());
          CHECK(bytes_text(out.bytes()) == expected);

          const bool keys = pick(rng, 0, 1) == 0;
          const HeadsView& view = keys ? layer.input.keys : layer.input.values;
          const std::uint32_t head = pick(rng, 0, 1), token = pick(rng, 0, 699);
          const std::uint32_t channel = pick(rng, 0, head_dim - 1);
          const std::size_t at = channel * dtype_size_bytes(dtype);
          std::byte good[sizeof(float)];
          std::memcpy(good, view.row(head, token) + at, dtype_size_bytes(dtype));
          const float bad = pick(rng, 0, 1) == 0 ? -INFINITY : NAN;
          set_element(layer, view, head, token, channel, bad);
          const Status status = encode(isa, Rows::kUnchecked);
          CHECK(status.code() == StatusCode::kInvalidArgument);
          CHECK_THAT(status.message(),
                     Catch::Contains(std::string("layer 3 ") + (keys ? "keys" : "values")) &&
                         Catch::Contains("at head " + std::to_string(head) + ", token " +
                                         std::to_string(token)));
          std::memcpy(const_cast<std::byte*>(view.row(head, token)) + at, good,
                      dtype_size_bytes(dtype));
        }
      }
    }
  }
}

namespace {

// Memory that another process writes to all the time, as clients may do with rows that are read in
// place.
class RestlessBytes {
 public:
  explicit RestlessBytes(std::size_t size) : size_(size) {
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    data_ = static_cast<std::byte*>(memory);
    const pid_t parent = ::getpid();
    writer_ = ::fork();
    if (writer_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the writer also ends if the test is killed, without
                                           // running destructors
      if (::getppid() != parent) ::_exit(1);
      for (std::uint64_t noise = 1;; noise = noise * 6364136223846793005u + 1442695040888963407u) {
        static_cast<volatile std::byte*>(data_)[(noise >> 20) % size_] =
            static_cast<std::byte>(noise >> 60);
      }
    }
    REQUIRE(writer_ > 0);
  }
  ~RestlessBytes() {
    ::kill(writer_, SIGKILL);
    ::waitpid(writer_, nullptr, 0);
    ::munmap(data_, size_);
  }
  RestlessBytes(const RestlessBytes&) = delete;
  RestlessBytes& operator=(const RestlessBytes&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::size_t size_;
  std::byte* data_;
  pid_t writer_;
};

}  // namespace

TEST_CASE("rows that change while they are encoded are hashed as they were stored",
          "[kernels][encode]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  constexpr std::uint32_t kTokens = 320;
  const RestlessBytes rows(2 * 2 * kTokens * 128 * sizeof(float));
  ThreadPool pool(2);
  for (const std::uint32_t head_dim : {24u, 32u, 64u, 128u}) {
    LayerShape shape;
    shape.num_tokens = kTokens;
    shape.head_dim = head_dim;
    shape.external = true;
    shape.dtype = pick_dtype(rng);
    CAPTURE(shape.text());
    OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe;
    recipe.scorer = Scorer::kExternal;
    const Compressed c = compress(CpuStages(1), recipe, layer.input, pick(rng, 2 * 64, 2 * 320));
    LayerInput& input = layer.input;
    input.keys = HeadsView::packed(rows.data(), 2, kTokens, head_dim, shape.dtype);
    input.values =
        HeadsView::packed(rows.data() + input.keys.size_bytes(), 2, kTokens, head_dim, shape.dtype);
    AlignedBytes out(c.records.bytes().size());
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      for (const Rows checked : {Rows::kChecked, Rows::kUnchecked}) {
        for (int round = 0; round < 50; ++round) {
          REQUIRE(encode_cpu({pool, isa}, input, c.scores, c.orders, c.counts, c.seats,
                             SegmentId{{1, 2, 3}}, out.mutable_bytes(), Encoding::kRaw, checked)
                      .ok());
          open_all(out);
        }
      }
    }
  }
}

TEST_CASE("coded records have the entries of raw ones, and their rows coded", "[kernels][encode]") {
  Rng rng(test_seed());
  const Encoding encoding =
      GENERATE(Encoding::kInt8, Encoding::kInt4, Encoding::kK8V4, Encoding::kK6V4);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  const bool sealed = GENERATE(true, false);
  CAPTURE(dtype_name(dtype), sealed);
  LayerShape shape;
  shape.num_kv_heads = 3;
  shape.num_tokens = 700;
  shape.head_dim = 64;
  shape.dtype = dtype;
  const OwnedLayer layer = make_layer(shape, rng);
  const CpuStages cpu(2);
  const Compressed raw = compress(cpu, Recipe{}, layer.input, 3 * 333);
  const std::vector<std::vector<std::uint32_t>> seats =
      sealed ? raw.seats : std::vector<std::vector<std::uint32_t>>();
  AlignedBytes coded(encoded_bytes(raw.counts, {64, dtype, encoding}), std::byte{0x77});
  REQUIRE(cpu.encode(layer.input, raw.scores, raw.orders, raw.counts, seats, SegmentId{{1, 2, 3}},
                     coded.mutable_bytes(), encoding, Rows::kUnchecked)
              .ok());
  if (!sealed) {
    REQUIRE(place_seats(coded.mutable_bytes(), raw.seats).ok());
    const MutableBytes whole = coded.mutable_bytes();
    REQUIRE(cpu.seal({&whole, 1}).ok());
  }
  const std::vector<RecordView> expected = open_all(raw.records), found = open_all(coded);
  REQUIRE(found.size() == expected.size());
  for (std::size_t h = 0; h < found.size(); ++h) {
    CHECK(found[h].encoding == encoding);
    CHECK(std::ranges::equal(found[h].positions, expected[h].positions));
    CHECK(std::ranges::equal(found[h].scores, expected[h].scores));
    CHECK(std::ranges::equal(found[h].seats, expected[h].seats));
    const EntryForm form = found[h].entry_form();
    std::vector<std::byte> keys(found[h].count * form.keys().bytes());
    encode_rows(form.keys(), found[h].count, expected[h].keys.data(), keys.data());
    CHECK(std::ranges::equal(found[h].keys, keys));
    std::vector<std::byte> values(found[h].count * form.values().bytes());
    encode_rows(form.values(), found[h].count, expected[h].values.data(), values.data());
    CHECK(std::ranges::equal(found[h].values, values));
  }
}

TEST_CASE("rows that would not be finite after they are decoded are refused", "[kernels][encode]") {
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  LayerShape shape;
  shape.head_dim = 64;
  shape.dtype = dtype;
  Rng rng(test_seed());
  OwnedLayer layer = make_layer(shape, rng);
  const CpuStages cpu(1);
  const Compressed c = compress(cpu, Recipe{}, layer.input, 10);
  const auto encode = [&](Encoding encoding) {
    AlignedBytes out(encoded_bytes(c.counts, {64, dtype, encoding}));
    return cpu.encode(layer.input, c.scores, c.orders, c.counts, c.seats, {}, out.mutable_bytes(),
                      encoding);
  };
  REQUIRE(encode(Encoding::kInt4).ok());
  // Every row gets two elements whose sum no f32 holds.
  const std::uint32_t rows = layer.input.keys.num_heads * layer.input.keys.num_tokens;
  const std::size_t size = dtype_size_bytes(dtype);
  const std::uint32_t largest = dtype == Dtype::kBf16 ? 0x7f7fu : 0x7f7fffffu;
  for (std::uint32_t row = 0; row < rows; ++row) {
    auto* const at = const_cast<std::byte*>(layer.input.keys.data) + row * 64 * size;
    std::memcpy(at, &largest, size);
    std::memcpy(at + size, &largest, size);
  }
  CHECK(encode(Encoding::kRaw).ok());
  for (const Encoding encoding :
       {Encoding::kInt8, Encoding::kInt4, Encoding::kK8V4, Encoding::kK6V4}) {
    const Status refused = encode(encoding);
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK(refused.message().find("use encoding=raw") != std::string::npos);
  }
}

TEST_CASE("a head that keeps nothing has an empty, valid record", "[kernels][encode]") {
  Rng rng(9);
  const OwnedLayer layer = make_layer({}, rng);
  const CpuStages cpu(1);
  const Compressed c = compress(cpu, Recipe{}, layer.input, 1);
  const auto records = open_all(c.records);
  CHECK(records[0].count == 1);
  CHECK(records[1].count == 0);
}

TEST_CASE("encode refuses a buffer of another size or alignment", "[kernels][encode]") {
  Rng rng(9);
  const OwnedLayer layer = make_layer({}, rng);
  const CpuStages cpu(1);
  Compressed c = compress(cpu, Recipe{}, layer.input, 10);
  AlignedBytes larger(c.records.bytes().size() + 64);
  const MutableBytes out = larger.mutable_bytes();
  const auto encode = [&](MutableBytes bytes) {
    return cpu.encode(layer.input, c.scores, c.orders, c.counts, c.seats, {}, bytes).code();
  };
  CHECK(encode(out) == StatusCode::kInvalidArgument);
  CHECK(encode(out.first(out.size() - 128)) == StatusCode::kInvalidArgument);
  CHECK(encode(out.subspan(2, out.size() - 64)) == StatusCode::kInvalidArgument);
  CHECK(encode(out.first(out.size() - 64)) == StatusCode::kOk);
}
