// Opens a catalog over rows that are each valid, in any combination.
#include <algorithm>
#include <cstring>
#include <string>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/faithful.h"
#include "precis/block_digest.h"
#include "precis/profile.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/mended_row.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/store/memory_store.h"

namespace precis::fuzz {
namespace {

using testing::models_of;
using testing::segments_of;
using testing::sessions_of;

class FixedClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 1'700'000'000'000; }
  std::uint64_t monotonic_ns() const override { return 0; }
};

// ---- the input: for each row its table (u8), its length (u16, little-endian) and its bytes

struct StoredRow {
  Table table;
  Bytes bytes;
};

std::vector<StoredRow> read_rows(Bytes input) {
  std::vector<StoredRow> rows;
  while (input.size() >= 3) {
    const auto table = static_cast<Table>(std::to_integer<std::size_t>(input[0]) % kTableCount);
    std::uint16_t length = 0;
    std::memcpy(&length, input.data() + 1, sizeof length);
    input = input.subspan(3);
    rows.push_back({table, input.first(std::min<std::size_t>(length, input.size()))});
    input = input.subspan(rows.back().bytes.size());
  }
  return rows;
}

void append_row(std::vector<std::byte>& out, Table table, Bytes bytes) {
  const auto length = static_cast<std::uint16_t>(bytes.size());
  out.push_back(static_cast<std::byte>(table));
  out.resize(out.size() + sizeof length);
  std::memcpy(out.data() + out.size() - sizeof length, &length, sizeof length);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// The key under which the catalog would write the row; another key if the row is invalid.
std::string key_of(Table table, Bytes row) {
  std::string none = "no key";
  switch (table) {
    case Table::kSegments:
      if (const auto r = decode_segment_row(row); r.ok()) return segment_key(r->id);
      return none;
    case Table::kSessions:
      if (const auto r = decode_stored_session(row); r.ok()) {
        return session_key(r->tenant, r->row.name);
      }
      return none;
    case Table::kModels:
      if (const auto r = decode_stored_model(row); r.ok()) {
        return model_key(r->tenant, model_fingerprint(r->model));
      }
      return none;
    case Table::kBudgets:
      if (const auto r = decode_stored_budget(row); r.ok()) return budget_key(r->tenant, r->model);
      return none;
    case Table::kProjections:
      if (const auto r = decode_stored_projection(row); r.ok()) {
        return projection_key(r->tenant, r->model, r->layer);
      }
      return none;
    case Table::kProfiles:
      if (const auto r = decode_stored_profile(row); r.ok()) {
        if (const auto p = parse_profile(r->json); p.ok()) {
          return profile_key(r->tenant, p->model, p->name);
        }
      }
      return none;
    case Table::kMeta: {  // a revision or a tenant, else a quarantine mark
      if (const auto r = decode_stored_tenant(row); r.ok()) return stored_tenant_key(r->name);
      if (const auto r = decode_stored_revision(row); r.ok()) {
        return revision_key(r->tenant, r->revision.number);
      }
      SegmentId id;
      for (std::size_t i = 0; i < std::min(row.size(), id.bytes.size()); ++i) {
        id.bytes[i] = std::to_integer<std::uint8_t>(row[i]);
      }
      return quarantine_key(id);
    }
    case Table::kPayload: return none;
  }
  return none;
}

// ---- the target

void use_segments(Catalog& catalog, const std::string& tenant) {
  const std::vector<TokenId> tokens(40, 5);
  for (const msg::SegmentInfo& info : segments_of(catalog, tenant, {}, 100)) {
    const auto chain = catalog.chain(tenant, info.id);
    if (!chain.ok()) {
      refused(chain.status());
    } else {
      PRECIS_CHECK(!chain->empty() && chain->front()->begin == 0);
      const SegmentRow& row = *chain->back();
      const ModelSpec model = *catalog.model(tenant, row.model);
      const TokenPath path = hash_path(row.root, tokens, model.block_tokens);
      for (const std::uint32_t faithful_ppm : {0u, 300'000u, kFaithful}) {
        for (const auto& link : catalog.match(tenant, path, faithful_ppm)) {
          PRECIS_CHECK(link.matched_end > link.row->begin && link.matched_end <= link.row->end);
        }
        (void)catalog.parents(tenant, path, faithful_ppm);
      }
    }
    (void)catalog.info(tenant, info.id, true);
    catalog.count_hit(info.id);
  }
  for (const msg::SegmentInfo& info : segments_of(catalog, tenant, {}, 100)) {
    if (const auto row = catalog.segment(tenant, info.id); row.ok()) catalog.quarantine(**row);
    (void)catalog.remove(tenant, info.id, true, nullptr);
  }
}

bool run_open_catalog(Bytes input) {
  testing::MemoryStore store;
  for (const StoredRow& row : read_rows(input)) {
    const std::vector<std::byte> bytes = mended_row(row.bytes);
    const std::string key = key_of(row.table, bytes);
    PRECIS_CHECK(store.write({{{row.table, key, bytes}}, {}}, Durability::kWal).ok());
  }
  const FixedClock clock;
  const auto opened = Catalog::open(store, clock);
  if (!opened.ok()) {
    PRECIS_CHECK(opened.status().code() == StatusCode::kVersionMismatch);
    return false;
  }
  Catalog& catalog = **opened;
  for (const std::string tenant : {"", "t"}) {
    for (const msg::ModelRow& model : models_of(catalog, tenant)) {
      (void)catalog.budgets(tenant, {model.fingerprint}, {});
      for (const msg::ProfileRow& profile : catalog.profiles(tenant, model.fingerprint)) {
        PRECIS_CHECK(catalog.profile(tenant, model.fingerprint, profile.name).ok());
        PRECIS_CHECK(catalog.remove_profile(tenant, model.fingerprint, profile.name).ok());
      }
    }
    for (const msg::SessionRow& session : sessions_of(catalog, tenant)) {
      PRECIS_CHECK(catalog.remove_session(tenant, session.name).ok());
    }
    use_segments(catalog, tenant);
  }
  return catalog.totals().quarantined_rows == 0;
}

// ---- seeds: a model with a profile, a chain of three segments, a session on the chain

SegmentRow segment_row(const ModelSpec& model, const SegmentRow* parent, std::uint32_t end) {
  const std::vector<TokenId> path(end, 5);
  const std::span<const TokenId> all(path);
  SegmentRow row;
  row.tenant = "t";
  row.model = model_fingerprint(model);
  row.root = path_root(row.tenant, "", row.model, "");
  row.begin = parent ? parent->end : 0;
  row.end = end;
  if (parent) row.parent = parent->id;
  row.tip = path_tip(row.root, all, model.block_tokens);
  row.blocks = block_digests(row.root, all, model.block_tokens);
  row.blocks.erase(row.blocks.begin(), row.blocks.begin() + row.begin / model.block_tokens);
  row.tail.assign(path.end() - end % model.block_tokens, path.end());
  row.id.bytes.fill(static_cast<std::uint8_t>(end));
  row.recipe = canonical_recipe(Recipe());
  row.plan = {model.num_layers, model.num_kv_heads, {}};
  row.plan.counts.assign(model.num_layers * model.num_kv_heads, 1);
  row.layer_bytes.assign(model.num_layers, 64);
  return row;
}

Inputs catalog_seeds(std::uint64_t) {
  ModelSpec model;
  model.name = "m";
  model.num_layers = 2;
  model.num_q_heads = model.num_kv_heads = model.head_dim = 1;
  model.block_tokens = 4;
  const SegmentRow first = segment_row(model, nullptr, 6);
  const SegmentRow second = segment_row(model, &first, 12);
  const SegmentRow third = segment_row(model, &second, 30);
  StoredSession session{"t", {}};
  session.row.name = "s";
  session.row.tip = third.id;
  session.row.tip_end = third.end;
  Profile profile;
  profile.name = "p";
  profile.kind = Profile::Kind::kWeights;
  profile.model = first.model;
  profile.scorer = profile_scorer(*parse_recipe("headkv"));
  profile.num_layers = 2;
  profile.num_kv_heads = 1;
  profile.table = {1, 2};
  StoredProjection projection;
  projection.tenant = "t";
  projection.model = first.model;

  std::vector<std::byte> all, chain;
  append_row(all, Table::kModels, encode(StoredModel{"t", model}));
  chain = all;
  for (const SegmentRow& row : {first, second, third}) {
    append_row(all, Table::kSegments, encode(row));
    append_row(chain, Table::kSegments, encode(row));
  }
  append_row(all, Table::kSessions, encode(session));
  append_row(all, Table::kProfiles, encode(StoredProfile{"t", profile_json(profile), 1}));
  append_row(all, Table::kProjections, encode(projection));
  append_row(all, Table::kBudgets, encode(StoredBudget{"t", first.model, "snapkv", {}, 1, 1}));
  append_row(all, Table::kMeta, std::as_bytes(std::span(third.id.bytes)));
  append_row(all, Table::kMeta,
             encode(StoredTenant{"t", "reader", 1, "", {{"token", 1}}, 0, 0, 0, 0, 1}));
  append_row(all, Table::kMeta, encode(StoredRevision{"t", {1, 1, "user", "why", {}, {}}}));
  return {chain, all};
}

constexpr Target kTargets[] = {{"open_catalog", run_open_catalog, catalog_seeds}};

}  // namespace

std::span<const Target> catalog_targets() { return kTargets; }

}  // namespace precis::fuzz
