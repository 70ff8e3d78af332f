// The arithmetic of the record format and of the served layout.
#include <catch2/catch.hpp>
#include <random>

#include "precis/record_format.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

TEST_CASE("the sections of a record are aligned, in order and large enough", "[unit][schema]") {
  const std::uint32_t count = GENERATE(0u, 1u, 63u, 64u, 65u, 1000u);
  const std::uint32_t head_dim = GENERATE(1u, 64u, 128u);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  CAPTURE(count, head_dim, dtype_name(dtype));
  const Encoding encoding = GENERATE(from_range(kEncodings));
  const EntryForm form{head_dim, dtype, encoding};
  const RecordLayout l = RecordLayout::of(count, form);
  const std::size_t begins[] = {l.checksums, l.positions, l.seats, l.scores,
                                l.keys,      l.values,    l.size};
  const std::size_t needs[] = {
      (count + 63) / 64 * 16ul, 4ul * count,          4ul * count, 4ul * count,
      count * l.key_bytes,      count * l.value_bytes};
  CHECK(l.checksums == 128);
  for (std::size_t s = 0; s < 6; ++s) {
    CAPTURE(s);
    CHECK(begins[s] % kSectionAlign == 0);
    CHECK(begins[s] + needs[s] <= begins[s + 1]);
    CHECK(begins[s + 1] - (begins[s] + needs[s]) < kSectionAlign);
  }
}

TEST_CASE("rows of K and V have the sizes that their encoding says", "[unit][schema]") {
  struct Sizes {
    Encoding encoding;
    std::size_t keys, values;
  };
  const auto [encoding, keys, values] =
      GENERATE(Sizes{Encoding::kRaw, 128, 128}, Sizes{Encoding::kInt8, 66, 66},
               Sizes{Encoding::kInt4, 34, 34}, Sizes{Encoding::kK8V4, 66, 34},
               Sizes{Encoding::kK6V4, 50, 34});
  CAPTURE(encoding_name(encoding));
  const EntryForm form{64, Dtype::kBf16, encoding};
  CHECK(form.bytes() == keys + values);
  CHECK(record_entry_bytes(form) == 12 + keys + values);
  const RecordLayout l = RecordLayout::of(64, form);
  CHECK(l.key_bytes == keys);
  CHECK(l.value_bytes == values);
  CHECK(l.values - l.keys == 64 * keys);
  CHECK(l.size - l.values == 64 * values);
}

TEST_CASE("a served layer's sections are aligned, in order and fit the capacity",
          "[unit][schema]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 21));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto num_links = static_cast<std::uint32_t>(1 + random() % 4);
  const auto num_kv_heads = static_cast<std::uint32_t>(1 + random() % 5);
  const auto num_layers = static_cast<std::uint32_t>(1 + random() % 4);
  // The links of a chain may have rows of different encodings.
  const EntryForm kinds[] = {{48, Dtype::kBf16},
                             {48, Dtype::kBf16, Encoding::kInt8},
                             {48, Dtype::kBf16, Encoding::kInt4},
                             {48, Dtype::kBf16, Encoding::kK8V4},
                             {48, Dtype::kBf16, Encoding::kK6V4}};
  const std::size_t key_bytes[] = {96, 50, 26, 50, 38}, value_bytes[] = {96, 50, 26, 26, 26};
  std::vector<EntryForm> forms;
  for (std::uint32_t link = 0; link < num_links; ++link) forms.push_back(kinds[(seed + link) % 5]);
  std::vector<std::uint64_t> entries(num_links);
  std::size_t bytes = 0;
  for (std::uint32_t layer = 0; layer < num_layers; ++layer) {
    std::vector<std::uint32_t> counts(num_links * num_kv_heads);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      entries[i / num_kv_heads] += counts[i] = static_cast<std::uint32_t>(random() % 200);
    }
    const ServedLayout layout = ServedLayout::of(counts, num_kv_heads, forms);
    REQUIRE(layout.heads.size() == num_kv_heads);
    std::size_t at = 0;
    for (std::uint32_t h = 0; h < num_kv_heads; ++h) {
      std::array<std::size_t, kServedSections> needs{};
      std::uint32_t count = 0;
      for (std::uint32_t link = 0; link < num_links; ++link) {
        const std::uint32_t n = counts[link * num_kv_heads + h];
        count += n;
        const std::size_t kind = (seed + link) % 5;
        const std::size_t part[] = {n / 64 * 16,          n * 4, n * 4, n * 4, n * key_bytes[kind],
                                    n * value_bytes[kind]};
        for (std::size_t s = 0; s < kServedSections; ++s) needs[s] += part[s];
      }
      CHECK(layout.heads[h].count == count);
      for (std::size_t s = 0; s < kServedSections; ++s) {
        CHECK(layout.heads[h].section[s] == at);
        CHECK(at % kSectionAlign == 0);
        at += (needs[s] + 63) / 64 * 64;
      }
    }
    CHECK(layout.size_bytes == at);
    bytes += layout.size_bytes;
  }
  CHECK(bytes <= served_capacity_bytes(entries, forms, num_layers, num_kv_heads));
}

TEST_CASE("forms that entries can't have are refused", "[unit][schema]") {
  const auto status = [](const EntryForm& form) { return form.validate().code(); };
  CHECK(status({0, Dtype::kF32, Encoding::kInt8}) == StatusCode::kInvalidArgument);
  CHECK(status({1025, Dtype::kF32, Encoding::kInt8}) == StatusCode::kInvalidArgument);
  CHECK(status({63, Dtype::kF32, Encoding::kInt4}) == StatusCode::kInvalidArgument);
  CHECK(status({63, Dtype::kF32, Encoding::kK8V4}) == StatusCode::kInvalidArgument);
  CHECK(status({62, Dtype::kF32, Encoding::kK6V4}) == StatusCode::kInvalidArgument);
  CHECK(status({62, Dtype::kF32, Encoding::kK8V4}) == StatusCode::kOk);
  CHECK(status({63, Dtype::kF32, Encoding::kInt8}) == StatusCode::kOk);
}

}  // namespace
}  // namespace precis
