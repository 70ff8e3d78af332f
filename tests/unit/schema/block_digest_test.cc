// Digests compared with vectors that a Python script made from the written rules only.
#include "precis/block_digest.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

namespace precis {
namespace {

nlohmann::json vectors() {
  std::ifstream file(PRECIS_SCHEMA_DIR "/block_digest_vectors.json");
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

Digest digest_in(const nlohmann::json& row, const char* name) {
  return parse_digest(row.at(name).get<std::string>()).value();
}

ModelSpec model_in(const nlohmann::json& row) {
  ModelSpec m;
  row.at("name").get_to(m.name);
  row.at("revision").get_to(m.revision);
  row.at("num_layers").get_to(m.num_layers);
  row.at("num_q_heads").get_to(m.num_q_heads);
  row.at("num_kv_heads").get_to(m.num_kv_heads);
  row.at("head_dim").get_to(m.head_dim);
  m.dtype = parse_dtype(row.at("dtype").get<std::string>()).value();
  row.at("rope_theta").get_to(m.rope_theta);
  row.at("rope_scaling").get_to(m.rope_scaling);
  row.at("block_tokens").get_to(m.block_tokens);
  row.at("windows").get_to(m.windows);
  return m;
}

std::optional<Budget> budget_in(const nlohmann::json& row, const std::string& field) {
  if (row.at(field + "_kind").is_null()) return std::nullopt;
  const auto kind = row.at(field + "_kind").get<std::string>();
  const auto value = row.at(field + "_value").get<std::uint64_t>();
  if (kind == "bytes") return Budget::bytes(value);
  REQUIRE(kind == "ratio");
  return Budget::ratio_ppm(static_cast<std::uint32_t>(value));
}

TEST_CASE("fingerprints and roots equal the published vectors", "[unit][schema]") {
  const auto all = vectors();
  REQUIRE(all.at("fingerprints").size() == 5);
  for (const auto& row : all.at("fingerprints")) {
    CHECK(model_fingerprint(model_in(row)).hex() == row.at("fingerprint"));
  }
  REQUIRE(all.at("roots").size() == 3);
  for (const auto& row : all.at("roots")) {
    const Digest root =
        path_root(row.at("tenant").get<std::string>(), row.at("salt").get<std::string>(),
                  digest_in(row, "fingerprint"), row.at("adapter").get<std::string>());
    CHECK(root.hex() == row.at("root"));
  }
}

TEST_CASE("block digests and tips equal the published vectors", "[unit][schema]") {
  const auto all = vectors();
  REQUIRE(all.at("in_shards").size() == 2);
  for (const auto& row : all.at("in_shards")) {
    const Digest root = root_in_shard(digest_in(row, "root"), row.at("shard").get<std::uint32_t>());
    CHECK(root.hex() == row.at("in_shard"));
  }
  REQUIRE(all.at("paths").size() == 6);
  for (const auto& row : all.at("paths")) {
    const auto tokens = row.at("tokens").get<std::vector<TokenId>>();
    const auto block_tokens = row.at("block_tokens").get<std::uint32_t>();
    CAPTURE(tokens.size(), block_tokens);
    std::vector<std::string> blocks;
    for (const Digest& d : block_digests(digest_in(row, "root"), tokens, block_tokens)) {
      blocks.push_back(d.hex());
    }
    CHECK(blocks == row.at("blocks").get<std::vector<std::string>>());
    CHECK(path_tip(digest_in(row, "root"), tokens, block_tokens).hex() == row.at("tip"));
  }
}

TEST_CASE("segment ids equal the published vectors", "[unit][schema]") {
  const auto all = vectors();
  REQUIRE(all.at("segments").size() == 2);
  for (const auto& row : all.at("segments")) {
    const Recipe recipe = parse_recipe(row.at("recipe").get<std::string>()).value();
    REQUIRE(canonical_recipe(recipe) == row.at("recipe"));
    const SegmentPlace place{digest_in(row, "tip_at_begin"),
                             row.at("begin"),
                             digest_in(row, "tip_at_end"),
                             row.at("end"),
                             parse_segment_id(row.at("parent").get<std::string>()).value(),
                             budget_in(row, "parent_read")};
    const SegmentId id = segment_id(place, recipe, *budget_in(row, "budget"));
    CHECK(id.hex() == row.at("segment"));
  }
}

TEST_CASE("ids of parts equal the published vectors", "[unit][schema]") {
  const auto all = vectors();
  REQUIRE(all.at("parts").size() == 2);
  for (const auto& row : all.at("parts")) {
    const SegmentId whole = parse_segment_id(row.at("segment").get<std::string>()).value();
    CHECK(part_id(whole, row.at("end")).hex() == row.at("part"));
  }
}

TEST_CASE("the tip of a path of whole blocks follows from its last block", "[unit][schema]") {
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5, 6, 7, 8};
  const TokenPath path = hash_path(Digest{}, tokens, 4);
  CHECK(boundary_tip(path.blocks[0]) == path.tip(4));
  CHECK(boundary_tip(path.blocks[1]) == path.tip(8));
}

TEST_CASE("block digests chain: any block can be computed from the one before", "[unit][schema]") {
  std::vector<TokenId> tokens(100);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i * i;
  const Digest root = path_root("t", "", Digest{}, "");
  const auto all = block_digests(root, tokens, 8);
  REQUIRE(all.size() == 12);
  const auto rest = block_digests(all[4], std::span(tokens).subspan(5 * 8), 8);
  CHECK(std::vector(all.begin() + 5, all.end()) == rest);
}

TEST_CASE("paths that differ in one token, in length or in their root have different tips",
          "[unit][schema]") {
  const Digest root = path_root("t", "", Digest{}, "");
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
  const Digest tip = path_tip(root, tokens, 4);
  CHECK(tip != path_tip(root, std::vector<TokenId>{1, 2, 3, 4, 6}, 4));
  CHECK(tip != path_tip(root, std::vector<TokenId>{9, 2, 3, 4, 5}, 4));
  CHECK(tip != path_tip(root, std::vector<TokenId>{1, 2, 3, 4}, 4));
  CHECK(tip != path_tip(path_root("u", "", Digest{}, ""), tokens, 4));
  // The tip of whole blocks is not the last block's digest.
  CHECK(path_tip(root, std::span(tokens).first(4), 4) != block_digests(root, tokens, 4)[0]);
}

TEST_CASE("every field of a model is part of its fingerprint", "[unit][schema]") {
  ModelSpec base;
  base.name = "m";
  const Digest digest = model_fingerprint(base);
  const auto changed = [&](auto change) {
    ModelSpec m = base;
    change(m);
    return model_fingerprint(m) != digest;
  };
  CHECK(changed([](ModelSpec& m) { m.name = "n"; }));
  CHECK(changed([](ModelSpec& m) { m.revision = "r"; }));
  CHECK(changed([](ModelSpec& m) { m.num_layers = 1; }));
  CHECK(changed([](ModelSpec& m) { m.num_q_heads = 1; }));
  CHECK(changed([](ModelSpec& m) { m.num_kv_heads = 1; }));
  CHECK(changed([](ModelSpec& m) { m.head_dim = 1; }));
  CHECK(changed([](ModelSpec& m) { m.dtype = Dtype::kF32; }));
  CHECK(changed([](ModelSpec& m) { m.rope_theta = 10001; }));
  CHECK(changed([](ModelSpec& m) { m.rope_scaling = "{}"; }));
  CHECK(changed([](ModelSpec& m) { m.block_tokens = 32; }));
  CHECK(changed([](ModelSpec& m) { m.windows = {512}; }));
}

TEST_CASE("a recipe's preset name is no part of a segment's identity", "[unit][schema]") {
  const Recipe preset = parse_recipe("keydiff").value();
  Recipe unnamed = preset;
  unnamed.preset = "something else";
  const auto id = [](const Recipe& r) {
    SegmentPlace place;
    place.end = 9;
    return segment_id(place, r, Budget::ratio_ppm(300000));
  };
  CHECK(id(preset) == id(unnamed));
  CHECK(id(preset) != id(parse_recipe("knorm").value()));
}

TEST_CASE("sha256 is SHA-256", "[unit][schema]") {
  // From FIPS 180-4: the digests of the empty text and of "abc".
  CHECK(sha256({}).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string abc = "abc";
  CHECK(sha256(std::as_bytes(std::span(abc))).hex() ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace precis
