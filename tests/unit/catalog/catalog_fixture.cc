#include "tests/unit/catalog/catalog_fixture.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "precis/block_digest.h"

namespace precis::testing {
namespace {

std::vector<std::byte> layer_bytes(const SegmentId& id, std::uint32_t layer) {
  std::vector<std::byte> bytes(40 + layer);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(id.bytes[i % id.bytes.size()] + layer + i);
  }
  return bytes;
}

}  // namespace

Tokens tokens(std::uint32_t length, TokenId first) {
  Tokens ids(length);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

NewSegment trimmed(const NewSegment& segment, std::uint32_t entries) {
  NewSegment less = segment;
  less.row.trimmed = Budget::entries(entries);
  std::ranges::fill(less.row.plan.counts, entries);
  less.row.stored_bytes = 0;
  for (std::size_t l = 0; l < less.layers.size(); ++l) {
    less.layers[l].resize(less.layers[l].size() / 2);
    less.row.layer_bytes[l] = less.layers[l].size();
    less.row.stored_bytes += less.layers[l].size();
  }
  return less;
}

CatalogFixture::CatalogFixture(std::uint32_t block_tokens, std::uint32_t window) {
  model.name = "model";
  model.num_layers = 3;
  model.num_q_heads = 2;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.block_tokens = block_tokens;
  if (window > 0) model.windows = {0, window, 0};
  fingerprint = model_fingerprint(model);
  root = path_root(tenant, "", fingerprint, "");
  reopen();
  REQUIRE(catalog->register_model(tenant, model).ok());
}

void CatalogFixture::reopen() {
  catalog.reset();
  auto opened = Catalog::open(store, clock);
  INFO(opened.status().to_string());
  REQUIRE(opened.ok());
  catalog = std::move(opened).value();
}

std::size_t CatalogFixture::stored_rows(Table table) {
  std::size_t rows = 0;
  REQUIRE(store
              .scan(table,
                    [&](std::string_view, Bytes) -> Status {
                      ++rows;
                      return {};
                    })
              .ok());
  return rows;
}

void CatalogFixture::crash_and_reopen() {
  catalog.reset();
  store.crash();  // Also loses the writes of closing, which are kMemory.
  reopen();
}

NewSegment CatalogFixture::segment(const Tokens& path, const NewSegment* parent,
                                   std::uint32_t variant, std::uint32_t entries,
                                   std::optional<Budget> parent_read) const {
  const std::span<const TokenId> all(path);
  NewSegment segment;
  segment.path = path;
  SegmentRow& row = segment.row;
  row.begin = parent ? parent->row.end : 0;
  row.end = static_cast<std::uint32_t>(path.size());
  row.tenant = tenant;
  row.model = fingerprint;
  row.root = root;
  row.parent = parent ? parent->row.id : SegmentId{};
  row.tip = path_tip(root, all, model.block_tokens);
  row.blocks = block_digests(root, all, model.block_tokens);
  row.blocks.erase(row.blocks.begin(), row.blocks.begin() + row.begin / model.block_tokens);
  row.tail.assign(path.end() - row.end % model.block_tokens, path.end());
  row.budget = Budget::entries(variant);
  row.parent_read = parent_read;
  if (parent) {
    const auto chain = catalog->chain(tenant, parent->row.id);
    for (const Catalog::Row& link : chain.ok() ? *chain : std::vector<Catalog::Row>()) {
      std::uint64_t read = link->plan.total();
      if (parent_read) {
        const auto asked =
            budget_entries(Recipe{}, model, link->end - link->begin, *parent_read, link->begin);
        REQUIRE(asked.ok());
        read = std::min(read, *asked);
      }
      row.parent_entries += read;
    }
  }
  row.id = segment_id({path_tip(root, all.first(row.begin), model.block_tokens), row.begin, row.tip,
                       row.end, row.parent, row.parent_read},
                      Recipe{}, row.budget);
  row.recipe = canonical_recipe(Recipe{});
  row.preset = "keydiff";
  row.plan = {model.num_layers, model.num_kv_heads, {}};
  row.plan.counts.assign(std::size_t{model.num_layers} * model.num_kv_heads, entries);
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    segment.layers.push_back(layer_bytes(row.id, l));
    row.layer_bytes.push_back(segment.layers.back().size());
    row.stored_bytes += segment.layers.back().size();
  }
  row.original_bytes = model.token_bytes() * (row.end - row.begin);
  row.created_unix_ms = clock.unix_ms();
  return segment;
}

Status CatalogFixture::commit(const NewSegment& segment, Durability durability) {
  return catalog->commit(segment.row, segment.payload(), durability);
}

NewSegment CatalogFixture::put(const Tokens& path, const NewSegment* parent, std::uint32_t variant,
                               std::uint32_t entries, Durability durability) {
  NewSegment made = segment(path, parent, variant, entries);
  const Status status = commit(made, durability);
  INFO(status.to_string());
  REQUIRE(status.ok());
  return made;
}

std::vector<Catalog::Link> CatalogFixture::match(const Tokens& ids,
                                                 std::uint32_t faithful_ppm) const {
  return catalog->match(tenant, hash_path(root, ids, model.block_tokens), faithful_ppm);
}

std::uint32_t CatalogFixture::matched(const Tokens& ids, std::uint32_t faithful_ppm) const {
  const auto links = match(ids, faithful_ppm);
  return links.empty() ? 0 : links.back().matched_end;
}

std::vector<SegmentId> CatalogFixture::parents(const Tokens& ids,
                                               std::uint32_t faithful_ppm) const {
  const TokenPath path = hash_path(root, ids, model.block_tokens);
  std::vector<SegmentId> chain;
  for (const Catalog::Row& row : catalog->parents(tenant, path, faithful_ppm)) {
    chain.push_back(row->id);
  }
  return chain;
}

bool CatalogFixture::has_payload(const NewSegment& segment) const {
  for (std::uint32_t l = 0; l < segment.layers.size(); ++l) {
    std::vector<std::byte> into(segment.layers[l].size());
    if (!catalog->read_layer(segment.row, l, into).ok() || into != segment.layers[l]) return false;
  }
  return true;
}

Profile CatalogFixture::profile(const std::string& name, float share) const {
  Profile profile;
  profile.name = name;
  profile.model = fingerprint;
  profile.scorer = profile_scorer(*parse_recipe("lukv(keydiff)"));
  profile.num_layers = model.num_layers;
  profile.num_kv_heads = model.num_kv_heads;
  profile.num_tokens = 100;
  profile.table.assign(std::size_t{Profile::kCurveRows} * model.num_layers * model.num_kv_heads,
                       share);
  return profile;
}

StatusCode CatalogFixture::segment_code(const SegmentId& id) const {
  return catalog->segment(tenant, id).status().code();
}

SegmentId CatalogFixture::tip(const std::string& session) const {
  return catalog->session(tenant, session).value().tip;
}

}  // namespace precis::testing
