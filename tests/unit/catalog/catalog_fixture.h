// A catalog over a memory store, with a clock that tests advance, and segments as a put makes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "tests/unit/store/memory_store.h"

namespace precis::testing {

class ManualClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return now_ms_; }
  std::uint64_t monotonic_ns() const override { return now_ms_ * 1'000'000; }
  void advance_ms(std::uint64_t ms) { now_ms_ += ms; }

 private:
  std::atomic<std::uint64_t> now_ms_{1'700'000'000'000};
};

using Tokens = std::vector<TokenId>;

// A segment before its commit.
struct NewSegment {
  SegmentRow row;
  Tokens path;  // from the root to the segment's end
  std::vector<std::vector<std::byte>> layers;
  std::vector<Catalog::Layer> payload() const {
    std::vector<Catalog::Layer> payload;
    for (const auto& layer : layers) payload.push_back({layer});
    return payload;
  }
};

class CatalogFixture {
 public:
  // `window`: of one layer of the model; 0: every layer sees all tokens.
  explicit CatalogFixture(std::uint32_t block_tokens = 4, std::uint32_t window = 0);

  // Closes the catalog and opens it again over the same store.
  void reopen();
  // As reopen(), but writes that were not durable are lost.
  void crash_and_reopen();

  // A segment of the last tokens of `path` with the given parent (null: at the root). `variant`
  // gives segments of the same tokens different recipes; each head keeps `entries`.
  NewSegment segment(const Tokens& path, const NewSegment* parent = nullptr,
                     std::uint32_t variant = 1, std::uint32_t entries = 1,
                     std::optional<Budget> parent_read = {}) const;
  // Makes and commits a segment; requires success.
  NewSegment put(const Tokens& path, const NewSegment* parent = nullptr, std::uint32_t variant = 1,
                 std::uint32_t entries = 1, Durability durability = Durability::kWal);
  Status commit(const NewSegment& segment, Durability durability = Durability::kWal);

  // By default, segments of any faithfulness match.
  std::vector<Catalog::Link> match(const Tokens& tokens, std::uint32_t faithful_ppm = 0) const;
  std::uint32_t matched(const Tokens& tokens, std::uint32_t faithful_ppm = 0) const;  // tokens
  std::vector<SegmentId> parents(const Tokens& tokens, std::uint32_t faithful_ppm = 0) const;
  bool has_payload(const NewSegment& segment) const;  // every layer, bit for bit
  std::size_t stored_rows(Table table);
  // A profile of the model for keydiff; all its curves have this share.
  Profile profile(const std::string& name, float share = 0.5f) const;
  StatusCode segment_code(const SegmentId& id) const;
  SegmentId tip(const std::string& session) const;

  MemoryStore store;
  ManualClock clock;
  std::unique_ptr<Catalog> catalog;
  const std::string tenant = "tenant";
  ModelSpec model;
  Digest fingerprint, root;
};

// The segment with `entries` entries left in each head, and shorter records.
NewSegment trimmed(const NewSegment& segment, std::uint32_t entries = 1);

// The tokens first, first + 1, ..., `length` in all.
Tokens tokens(std::uint32_t length, TokenId first = 100);

}  // namespace precis::testing
