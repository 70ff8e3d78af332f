// Digests of paths (schema/README.md specifies the hashed bytes).
#include "precis/block_digest.h"

#include <openssl/evp.h>

#include <bit>
#include <cstring>
#include <memory>

namespace precis {
namespace {

static_assert(std::endian::native == std::endian::little,
              "integers are hashed as they lie in memory");

// The algorithm, fetched once. OpenSSL would otherwise fetch it for every digest, which takes
// longer than hashing a block.
const EVP_MD* sha256_algorithm() {
  static const std::unique_ptr<EVP_MD, decltype(&EVP_MD_free)> fetched(
      EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_free);
  PRECIS_CHECK(fetched != nullptr);
  return fetched.get();
}

// SHA-256, reusable after finish(). OpenSSL calls fail here only if memory or the algorithm itself
// is missing; no caller could handle that.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    PRECIS_CHECK(context_ != nullptr);
    PRECIS_CHECK(EVP_DigestInit_ex2(context_.get(), sha256_algorithm(), nullptr) == 1);
  }
  Sha256& raw(const void* data, std::size_t size) {
    PRECIS_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
    return *this;
  }
  Sha256& text(std::string_view s) {
    return integer(static_cast<std::uint32_t>(s.size())).raw(s.data(), s.size());
  }
  template <typename T>
  Sha256& integer(T value) {
    static_assert(std::is_unsigned_v<T>);
    return raw(&value, sizeof value);
  }
  Sha256& digest(const Digest& d) { return raw(d.bytes.data(), d.bytes.size()); }
  Sha256& tokens(std::span<const TokenId> ids) { return raw(ids.data(), ids.size_bytes()); }
  Digest finish() {
    Digest d;
    PRECIS_CHECK(EVP_DigestFinal_ex(context_.get(), d.bytes.data(), nullptr) == 1);
    PRECIS_CHECK(EVP_DigestInit_ex2(context_.get(), nullptr, nullptr) == 1);
    return d;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

SegmentId id_of(const Digest& whole) {
  SegmentId id;
  std::memcpy(id.bytes.data(), whole.bytes.data(), id.bytes.size());
  return id;
}

}  // namespace

Digest model_fingerprint(const ModelSpec& model) {
  Sha256 hash;
  hash.text("precis.model.v1")
      .text(model.name)
      .text(model.revision)
      .integer(model.num_layers)
      .integer(model.num_q_heads)
      .integer(model.num_kv_heads)
      .integer(model.head_dim)
      .integer(static_cast<std::uint8_t>(model.dtype))
      .integer(std::bit_cast<std::uint64_t>(model.rope_theta))
      .text(model.rope_scaling)
      .integer(model.block_tokens);
  for (const std::uint32_t window : model.windows) hash.integer(window);
  return hash.finish();
}

Digest path_root(std::string_view tenant, std::string_view salt, const Digest& fingerprint,
                 std::string_view adapter) {
  return Sha256()
      .text("precis.root.v1")
      .text(tenant)
      .text(salt)
      .digest(fingerprint)
      .text(adapter)
      .finish();
}

Digest root_in_shard(const Digest& root, std::uint32_t shard) {
  return Sha256().text("precis.in_shard.v1").digest(root).integer(shard).finish();
}

Digest shard_space(std::string_view tenant, std::string_view salt) {
  return Sha256().text("precis.space.v1").text(tenant).text(salt).finish();
}

Digest shard_root(const Digest& space, const Digest& fingerprint, std::string_view adapter) {
  return Sha256().text("precis.shards.v1").digest(space).digest(fingerprint).text(adapter).finish();
}

Digest session_digest(const Digest& space, std::string_view deciding_part) {
  return Sha256().text("precis.session.v1").digest(space).text(deciding_part).finish();
}

Digest block_digest(const Digest& previous, std::span<const TokenId> block) {
  thread_local Sha256 sha;  // making one takes as long as hashing a fifth of a block
  return sha.digest(previous).tokens(block).finish();
}

std::vector<Digest> block_digests(const Digest& previous, std::span<const TokenId> tokens,
                                  std::uint32_t block_tokens) {
  PRECIS_CHECK(block_tokens > 0);
  std::vector<Digest> digests(tokens.size() / block_tokens);
  const Digest* before = &previous;
  for (std::size_t k = 0; k < digests.size(); ++k) {
    const auto block = tokens.subspan(k * block_tokens, block_tokens);
    digests[k] = block_digest(*before, block);
    before = &digests[k];
  }
  return digests;
}

Digest path_tip(const Digest& root, std::span<const TokenId> tokens, std::uint32_t block_tokens) {
  return hash_path(root, tokens, block_tokens).tip(tokens.size());
}

Digest boundary_tip(const Digest& block) {
  return Sha256().text("precis.tip.v1").digest(block).finish();
}

TokenPath hash_path(const Digest& root, std::span<const TokenId> tokens,
                    std::uint32_t block_tokens) {
  return {root, tokens, block_tokens, block_digests(root, tokens, block_tokens)};
}

Digest TokenPath::tip(std::size_t end) const {
  const std::size_t whole = end / block_tokens;
  return Sha256()
      .text("precis.tip.v1")
      .digest(whole == 0 ? root : blocks[whole - 1])
      .tokens(tokens.first(end).subspan(whole * block_tokens))
      .finish();
}

SegmentId segment_id(const SegmentPlace& place, const Recipe& recipe, const Budget& budget) {
  const Budget read = place.parent_read.value_or(Budget{});
  const Digest whole = Sha256()
                           .text("precis.segment.v1")
                           .digest(place.tip_at_begin)
                           .integer(place.begin)
                           .digest(place.tip_at_end)
                           .integer(place.end)
                           .raw(place.parent.bytes.data(), place.parent.bytes.size())
                           .integer(static_cast<std::uint8_t>(place.parent_read.has_value()))
                           .integer(static_cast<std::uint8_t>(read.kind))
                           .integer(read.value)
                           .text(canonical_recipe(recipe))
                           .integer(static_cast<std::uint8_t>(budget.kind))
                           .integer(budget.value)
                           .finish();
  return id_of(whole);
}

SegmentId part_id(const SegmentId& segment, std::uint32_t end) {
  return id_of(Sha256()
                   .text("precis.part.v1")
                   .raw(segment.bytes.data(), segment.bytes.size())
                   .integer(end)
                   .finish());
}

SegmentId projection_id(std::string_view tenant, const Digest& fingerprint, bool is_gram) {
  return id_of(Sha256()
                   .text("precis.projection.v1")
                   .text(tenant)
                   .digest(fingerprint)
                   .integer(static_cast<std::uint8_t>(is_gram))
                   .finish());
}

Digest sha256(std::span<const std::byte> data) {
  return Sha256().raw(data.data(), data.size()).finish();
}

}  // namespace precis
